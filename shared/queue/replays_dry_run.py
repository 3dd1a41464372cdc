"""What a replay would do, before anybody starts it."""

from __future__ import annotations

from dataclasses import dataclass

from shared.db.pool import Conn
from shared.queue.dead_letters import Count, Filter, count_dead
from shared.queue.elsewhere import DELIVERY, find_endpoint
from shared.queue.replays_pace import check_rate


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a replay would do: `seconds` is how long its restarts take at its rate."""

    total: int
    left_out: int
    left_paused: int
    paused_types: list[str]
    joining: int
    seconds: float
    counts: list[Count]
    not_deliveries: int = 0
    to: str | None = None

    @property
    def restarted(self) -> int:
        """How many would run of their own, or go to the other endpoint."""
        return self.total - self.left_out - self.left_paused - self.joining - self.not_deliveries


def count_replay(connection: Conn, wanted: Filter, *, rate: float, to: str | None = None) -> DryRun:
    """Count what a replay would restart, and change nothing.

    `to` names the endpoint that deliveries go to instead of their own. Raises UserError for what the replay would be refused
    for: a rate that cannot be, and an endpoint, that one or their own, that is not there or disabled.
    """
    check_rate(rate)
    find_endpoint(connection, wanted.endpoint if to is None else to)
    counts = count_dead(connection, wanted)
    if to is not None:
        deliveries = [found for found in counts if found.type == DELIVERY]
        others = sum(found.count for found in counts if found.type != DELIVERY)
        paused = sum(found.left_paused for found in deliveries)
        sent = sum(found.count for found in deliveries) - paused
        types = [DELIVERY] if paused else []
        return DryRun(sent + paused + others, 0, paused, types, 0, sent / rate, counts, others, to)
    total, left_out = sum(found.count for found in counts), sum(found.left_out for found in counts)
    joining, left_paused = sum(found.joining for found in counts), sum(found.left_paused for found in counts)
    paused_types = sorted({found.type for found in counts if found.left_paused})
    seconds = (total - left_out - left_paused - joining) / rate
    return DryRun(total, left_out, left_paused, paused_types, joining, seconds, counts)
