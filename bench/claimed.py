"""From a message to the claim of its job, with SETTLE_SECONDS=0, by the database's clock: with wake, and by the timer alone.

The senders are unknown and declined, so that a job asks no model; between two messages the host is idle.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

from bench.figures import Figure, Goal, Spread
from bench.lab import Lab, is_idle, wait_until
from bench.load import Sender, webhook
from bench.report import alone
from local.host_process import HostProcess
from local.standins.twilio import TwilioStandIn
from shared.db.pool import Conn

WAKE_ROUNDS, WAKE_MESSAGES = 4, 26
IDLE_SECONDS = 0.1  # between two messages, besides the time that the first one's job takes
TIMER_ROUNDS, TIMER_MESSAGES = 4, 26
PERIOD = 2  # seconds; the shipped schedule is every five
PER_PERIOD = 10  # messages in one period of the timer; there are eight slots, and a job takes little

# The first claim of each message's job; the messages are answered one by one, so each has a job of its own.
DELAYS = """
    SELECT extract(epoch FROM a.started - m.created_at)::float8
    FROM messages m
        JOIN ai_jobs j ON j.type = 'autoreply' AND (j.payload ->> 'message_id')::uuid = m.id
        JOIN job_attempts a ON a.job_id = j.id AND a.run = 1 AND a.claim = 1
    WHERE NOT m.from_self
    ORDER BY m.seq
"""


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about a minute."""
    with Lab() as lab, TwilioStandIn(steps=()) as twilio:
        changes = {"SETTLE_SECONDS": "0", "TWILIO_API_BASE_URL": twilio.url}
        woken, timed = lab.database("woken"), lab.database("timed")
        host = lab.host(woken, "--no-timer", "--queue-standin", changes=changes)
        note(f"claimed: {WAKE_ROUNDS * WAKE_MESSAGES} messages, with wake …")
        by_wake = _by_wake(lab.connect(woken), host)
        host.stop()
        host = lab.host(timed, "--no-wake", changes=changes | {"POLL_SCHEDULE": f"*/{PERIOD} * * * * *"})
        note(f"claimed: {TIMER_ROUNDS * TIMER_MESSAGES} messages, by the timer alone …")
        by_timer = _by_timer(lab.connect(timed), host)
    wake = "wake in one process, no timer"
    timer = f"timer every {PERIOD} s alone"
    return [
        Figure("claimed", f"p50, {wake}", _spread(by_wake, 0.5, 1000), "ms", goal=Goal(20.0)),
        Figure("claimed", f"p95, {wake}", _spread(by_wake, 0.95, 1000), "ms"),
        Figure("claimed", f"p50, {timer}", _spread(by_timer, 0.5, 1), "s"),
        Figure("claimed", f"slowest, {timer}", _spread(by_timer, 1.0, 1), "s", goal=Goal(float(PERIOD))),
    ]


def _by_wake(connection: Conn, host: HostProcess) -> list[list[float]]:
    """The delays (seconds) of each round."""
    count = 10 + WAKE_ROUNDS * WAKE_MESSAGES
    with Sender() as sender:
        for number in range(count):
            sender.one_by_one(host.url, [webhook(host.url, f"+{31_600_000_000 + number}", "hallo")])
            wait_until(lambda: is_idle(connection), "a job to be done")
            time.sleep(IDLE_SECONDS)
    return _rounds(connection, count, WAKE_ROUNDS, WAKE_MESSAGES)


def _by_timer(connection: Conn, host: HostProcess) -> list[list[float]]:
    """The same; the messages come at random moments of the timer's period."""
    count, draw = TIMER_ROUNDS * TIMER_MESSAGES, random.Random(7)
    begins = time.monotonic()
    with Sender() as sender:
        for number in range(count):
            due = begins + (number + draw.random()) * PERIOD / PER_PERIOD
            time.sleep(max(due - time.monotonic(), 0.0))
            sender.one_by_one(host.url, [webhook(host.url, f"+{31_600_000_000 + number}", "hallo")])
    wait_until(lambda: is_idle(connection), "the last jobs to be done")
    return _rounds(connection, count, TIMER_ROUNDS, TIMER_MESSAGES)


def _rounds(connection: Conn, count: int, rounds: int, messages: int) -> list[list[float]]:
    """Of all the messages the last ones, in rounds: the first are the warm-up."""
    delays = [float(row[0]) for row in connection.execute(DELAYS).fetchall()]
    assert len(delays) == count, f"{count} messages have {len(delays)} first claims"
    return [list(batch) for batch in itertools.batched(delays[-rounds * messages :], messages, strict=True)]


def _spread(rounds: list[list[float]], share: float, factor: float) -> Spread:
    return Spread.pooled([[delay * factor for delay in delays] for delays in rounds], share)


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
