"""The types of jobs as operators see and set them: what waits and runs of each, its weight, its limit, and its pause.

A setting is changed only from what the person has seen, so that two who are at it do not undo each other without knowing.
Each change is one statement with its line in the audit log, and counts from the next claim on, over all instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from shared import audit
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.queue.closing import REASON_LIMIT

WEIGHT_AT_MOST = 1000
RUNNING_AT_MOST = 1000

# Each part reads a partial index. A type without a row is one that this version does not know: it is never claimed.
LIST = """
    WITH counted AS (
        SELECT type, count(*)::int AS waiting, count(*) FILTER (WHERE next_run_at <= now())::int AS due,
            min(next_run_at) FILTER (WHERE next_run_at <= now()) AS due_since, 0 AS running, 0 AS dead
        FROM ai_jobs WHERE status = 'pending' GROUP BY type
        UNION ALL
        SELECT type, 0, 0, NULL, count(*)::int, 0 FROM ai_jobs WHERE status = 'processing' GROUP BY type
        UNION ALL
        SELECT type, 0, 0, NULL, 0, count(*)::int FROM ai_jobs
        WHERE status = 'failed' AND closed_at IS NULL GROUP BY type
    ), summed AS (
        SELECT type, sum(waiting)::int AS waiting, sum(due)::int AS due, max(due_since) AS due_since,
            sum(running)::int AS running, sum(dead)::int AS dead
        FROM counted GROUP BY type
    )
    SELECT type, t.weight IS NOT NULL AS is_known, coalesce(t.weight, 1) AS weight, t.max_running,
        coalesce(t.paused, false) AS paused, pause.who AS paused_by, pause.at AS paused_at, pause.reason AS paused_why,
        t.resting_until, t.resting_reason, coalesce(s.waiting, 0) AS waiting, coalesce(s.due, 0) AS due, s.due_since,
        extract(epoch FROM now() - s.due_since)::float8 AS oldest_due_seconds, coalesce(s.running, 0) AS running,
        coalesce(s.dead, 0) AS dead
    FROM job_types t FULL JOIN summed s USING (type)
    LEFT JOIN LATERAL (
        SELECT a.who, a.at, a.details ->> 'reason' AS reason FROM audit_log a
        WHERE t.paused AND a.target_id = t.type AND a.target_type = 'job_type' AND a.what = 'pause_type'
        ORDER BY a.id DESC LIMIT 1) AS pause ON true
    WHERE %(type)s::text IS NULL OR type = %(type)s
    ORDER BY type
"""
FINISHED = """
    SELECT type, count(*)::int FROM ai_jobs
    WHERE status = 'done' AND updated_at > now() - interval '24 hours' GROUP BY type
"""
PAUSE = "UPDATE job_types SET paused = true WHERE type = %(type)s AND NOT paused RETURNING type"
# What has waited through the pause is as old as if it had come in now: a snooze is no reason to bury it.
RESUME = "UPDATE job_types SET paused = false, age_from = now() WHERE type = %(type)s AND paused RETURNING type"
SET_LIMITS = """
    UPDATE job_types SET weight = %(weight)s, max_running = %(max_running)s
    WHERE type = %(type)s AND weight = %(seen_weight)s AND max_running IS NOT DISTINCT FROM %(seen_max_running)s
    RETURNING type
"""
EXISTS = "SELECT FROM job_types WHERE type = %(type)s"


@dataclass(frozen=True, slots=True)
class Limits:
    """`weight`: its share of the slots when others wait too. `max_running`: at once, over all instances; None: no limit."""

    weight: int
    max_running: int | None


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One type. `waiting` is the depth, of which `due` could run now, the oldest since `due_since`; `dead` are not closed."""

    type: str
    is_known: bool
    weight: int
    max_running: int | None
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    paused_why: str | None
    resting_until: datetime | None  # when the next probe may go
    resting_reason: str | None
    waiting: int
    due: int
    due_since: datetime | None
    oldest_due_seconds: float | None
    running: int
    dead: int

    @property
    def limits(self) -> Limits:
        """What an operator can set."""
        return Limits(self.weight, self.max_running)


def list_types(connection: Conn) -> list[TypeRow]:
    """All types, by name."""
    return _select(connection, None)


def find_type(connection: Conn, job_type: str) -> TypeRow | None:
    """One type; None when it has no row and no jobs."""
    return next(iter(_select(connection, storable(job_type))), None)


def finished_lately(connection: Conn) -> dict[str, int]:
    """How many of each type were done in the last 24 hours. Reads the finished jobs: not for every two seconds."""
    return {str(name): int(count) for name, count in connection.execute(FINISHED)}


def pause(connection: Conn, job_type: str, *, who: str, reason: str = "") -> None:
    """Begin nothing more of a type; what runs is finished, what waits stays. Raises UserError when it is paused already."""
    job_type, said = storable(job_type), _said(reason)
    with connection.transaction():
        if one(connection, PAUSE, {"type": job_type}) is None:
            _check_exists(connection, job_type)
            raise UserError(f"{job_type} is paused already.", name="type_paused")
        audit.record(connection, who=who, what="pause_type", target_type="job_type", target_id=job_type, reason=said)


def resume(connection: Conn, job_type: str, *, who: str) -> None:
    """Go on with a paused type, the oldest first. Raises UserError when it is not paused."""
    job_type = storable(job_type)
    with connection.transaction():
        if one(connection, RESUME, {"type": job_type}) is None:
            _check_exists(connection, job_type)
            raise UserError(f"{job_type} is not paused.", name="type_not_paused")
        audit.record(connection, who=who, what="resume_type", target_type="job_type", target_id=job_type)


def set_limits(connection: Conn, job_type: str, wanted: Limits, *, seen: Limits, who: str) -> None:
    """Set weight and limit, of which the person has seen the values `seen`.

    Raises UserError for values that cannot be, and when somebody else has changed them meanwhile.
    """
    if not 1 <= wanted.weight <= WEIGHT_AT_MOST:
        raise UserError(f"A weight is a whole number from 1 to {WEIGHT_AT_MOST:,}.", name="type_weight")
    if wanted.max_running is not None and not 1 <= wanted.max_running <= RUNNING_AT_MOST:
        raise UserError(f"A limit is a whole number from 1 to {RUNNING_AT_MOST:,}, or none.", name="type_limit")
    job_type = storable(job_type)
    parameters = {
        "type": job_type, "weight": wanted.weight, "max_running": wanted.max_running,
        "seen_weight": seen.weight, "seen_max_running": seen.max_running,
    }  # fmt: skip
    with connection.transaction():
        if one(connection, SET_LIMITS, parameters) is None:
            _check_exists(connection, job_type)
            raise UserError(
                f"Somebody else has changed the limits of {job_type} meanwhile: look at them, and try again.",
                name="type_changed",
            )
        if wanted == seen:
            return
        changes = {
            name: f"{_shown(before)} → {_shown(after)}"
            for name, before, after in (
                ("weight", seen.weight, wanted.weight), ("max_running", seen.max_running, wanted.max_running)
            ) if before != after
        }  # fmt: skip
        audit.record(connection, who=who, what="set_type_limits", target_type="job_type", target_id=job_type, **changes)


def _select(connection: Conn, job_type: str | None) -> list[TypeRow]:
    with connection.cursor(row_factory=class_row(TypeRow)) as cursor:
        return cursor.execute(LIST, {"type": job_type}).fetchall()


def _check_exists(connection: Conn, job_type: str) -> None:
    if one(connection, EXISTS, {"type": job_type}) is None:
        raise UserError(f"There is no type of job {job_type or repr(job_type)}.", name="no_type")


def _said(reason: str) -> str | None:
    """A reason that may be left out, on one line."""
    said = " ".join(storable(reason).split())
    if len(said) > REASON_LIMIT:
        raise UserError(f"The reason is longer than {REASON_LIMIT} characters.", name="reason_too_long")
    return said or None


def _shown(limit: int | None) -> str:
    return "∞" if limit is None else str(limit)
