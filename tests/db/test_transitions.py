"""What must never happen to a row, and is refused by the database whoever asks for it; and that all else is allowed.

The tables below are the states' arrows. Each pair of states is tried with plain SQL, on a row that was forced into the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from shared.db.pool import Database
from tests.fakes.world import World

ADDRESS = "+31600000001"

type Legal = dict[str, frozenset[str]]


def arrows(*lines: str) -> Legal:
    """`"a > b c"` lines as a table; what stays in its state is always allowed unless a test says otherwise."""
    pairs = [line.split(" > ") for line in lines]
    return {before: frozenset(after.split()) for before, after in pairs}


# "closed" is a dead letter that has been closed, or a waiting job that was cancelled.
JOBS = arrows(
    "pending > pending processing closed",
    "processing > processing pending done failed",
    "done > ",
    "failed > failed pending done closed",
    "closed > ",
)
JOB_COLUMNS = {
    "pending": "status = 'pending', lease_token = NULL, lease_until = NULL, closed_at = NULL, closed_by = NULL",
    "processing": "status = 'processing', lease_token = %(token)s, lease_until = now(), closed_at = NULL, closed_by = NULL",
    "done": "status = 'done', lease_token = NULL, lease_until = NULL, closed_at = NULL, closed_by = NULL",
    "failed": "status = 'failed', lease_token = NULL, lease_until = NULL, closed_at = NULL, closed_by = NULL",
    "closed": "status = 'failed', lease_token = NULL, lease_until = NULL, closed_at = now(), closed_by = 'anna'",
}
# What belongs to the arrow: a claim is counted, a restart is a new run.
JOB_MOVES = {("pending", "processing"): ", claims = claims + 1", ("failed", "pending"): ", run = run + 1, claims = 0"}

ON_ITS_WAY = "delivered read failed"
MESSAGES = arrows(
    "received > received",
    "draft > draft sending held failed sent delivered read",  # one that came back from an attempt may have left
    f"sending > sending draft held sent {ON_ITS_WAY}",
    f"held > held draft sending sent {ON_ITS_WAY}",
    f"sent > sent {ON_ITS_WAY}",
    "delivered > delivered read",
    "read > read",
    "failed > failed draft sending sent delivered read",
)
# The same once Twilio's sid is known.
MESSAGES_WITH_SID = arrows(
    "draft > draft held failed sent delivered read",
    f"sending > sending held sent {ON_ITS_WAY}",
    f"held > held sent {ON_ITS_WAY}",
    f"sent > sent {ON_ITS_WAY}",
    "delivered > delivered read",
    "read > read",
    "failed > failed",
)
SUGGESTIONS = arrows("open > open sent rejected", "sent > ", "rejected > ")
IMPORTS = arrows(
    "waiting > waiting running done failed",
    "running > running done failed",
    "failed > failed running done",  # a restarted job goes on
    "done > done",
)
REPLAYS = arrows("running > running stopped done", "stopped > stopped running done", "done > done")


def pairs(legal: Legal) -> list[tuple[str, str]]:
    return list(product(legal, legal))


@dataclass
class Rows:
    """A world, one row of each table, and whether the database takes a change."""

    world: World
    conversation: UUID
    job: UUID

    def allows(self, sql: str, **parameters: Any) -> bool:
        """Whether an UPDATE of one row is done; it must be a trigger that refuses it, by name."""
        name = None
        try:
            with self.world.database.transaction() as connection:
                assert connection.execute(sql.encode(), parameters).rowcount == 1
        except psycopg.errors.CheckViolation as refused:
            name = refused.diag.constraint_name or ""
        assert name is None or name.endswith(("_transition", "_bookkeeping", "_as_made")), name
        return name is None

    def message(self, status: str, sid: str | None = None) -> UUID:
        """A message that was forced into a state."""
        message, ours = uuid4(), status != "received"
        self.world.execute(
            "INSERT INTO messages (id, conversation_id, from_self, source, body, status, reply_id, part, parts)"
            " VALUES (%(id)s, %(conversation)s, %(ours)s, %(source)s, 'x', %(status)s, %(reply)s, %(part)s, %(part)s)",
            id=message,
            conversation=self.conversation,
            ours=ours,
            source="ai" if ours else "contact",
            status="draft" if ours else "received",
            reply=message if ours else None,
            part=1 if ours else None,
        )
        self.world.force(
            "UPDATE messages SET status = %(status)s, provider_sid = %(sid)s, held_reason = 'x', send_attempt = 3,"
            " send_started_at = now() WHERE id = %(id)s",
            id=message,
            status=status,
            sid=sid,
        )
        return message

    def become(self, message: UUID, status: str) -> bool:
        """Whether a message may go into a state; a request to Twilio is counted."""
        counted = ", send_attempt = send_attempt + 1" if status == "sending" else ""
        return self.allows(f"UPDATE messages SET status = %(status)s {counted} WHERE id = %(id)s",
                           status=status, id=message)  # fmt: skip


@pytest.fixture
def rows(database: Database) -> Iterator[Rows]:
    world = World(database)
    conversation = world.value("INSERT INTO conversations (address) VALUES (%(address)s) RETURNING id", address=ADDRESS)
    job = world.value(
        'INSERT INTO ai_jobs (payload, conversation_id) VALUES (\'{"type": "embed_record"}\', %(id)s) RETURNING id',
        id=conversation,
    )
    yield Rows(world, conversation, job)
    for table in ("suggestions", "imports", "replays", "ai_jobs", "messages", "conversations"):
        world.force(f"DELETE FROM {table}")


# Jobs


@pytest.mark.parametrize(("before", "after"), pairs(JOBS))
def test_a_job_moves_along_its_arrows_alone(rows: Rows, before: str, after: str) -> None:
    token = uuid4()
    rows.world.force(
        f"UPDATE ai_jobs SET {JOB_COLUMNS[before]}, claims = 2 WHERE id = %(id)s", id=rows.job, token=token
    )
    moved = rows.allows(
        f"UPDATE ai_jobs SET {JOB_COLUMNS[after]} {JOB_MOVES.get((before, after), '')} WHERE id = %(id)s",
        id=rows.job,
        token=token,
    )
    assert moved is (after in JOBS[before])


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ("pending", JOB_COLUMNS["processing"]),  # a claim that nobody counted
        ("processing", "lease_token = gen_random_uuid()"),  # taken from the worker that has it
        ("processing", JOB_COLUMNS["pending"] + ", claims = claims - 1"),
        ("processing", "run = run + 1"),
        ("processing", JOB_COLUMNS["pending"] + ", run = run + 1, claims = 0"),
        ("failed", JOB_COLUMNS["pending"]),  # a restart that is no run of its own
        ("failed", JOB_COLUMNS["pending"] + ", run = run + 2"),
        ("pending", "rerun = false"),
        ("pending", JOB_COLUMNS["processing"] + ", claims = claims + 1, rerun = false"),
        ("processing", JOB_COLUMNS["pending"] + ", rerun = false"),
        ("processing", JOB_COLUMNS["done"] + ", rerun = false"),
        ("pending", "conversation_id = NULL"),
    ],
)
def test_a_job_s_claims_runs_and_joins_are_kept(rows: Rows, before: str, change: str) -> None:
    rows.world.force(
        f"UPDATE ai_jobs SET {JOB_COLUMNS[before]}, claims = 2, rerun = true WHERE id = %(id)s",
        id=rows.job,
        token=uuid4(),
    )
    as_it_was = rows.world.rows("SELECT * FROM ai_jobs")
    token = rows.world.value("SELECT coalesce(lease_token, gen_random_uuid()) FROM ai_jobs")
    assert not rows.allows(f"UPDATE ai_jobs SET {change} WHERE id = %(id)s", id=rows.job, token=token)
    assert rows.world.rows("SELECT * FROM ai_jobs") == as_it_was


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ("pending", 'next_run_at = now(), rerun = true, payload = payload || \'{"message_id": "x"}\''),  # a join
        ("pending", JOB_COLUMNS["processing"] + ", claims = claims + 1, attempts = attempts + 1"),
        ("processing", "lease_until = now() + interval '30 seconds'"),  # a renewal
        ("processing", "rerun = false"),  # it reads the open messages
        ("processing", JOB_COLUMNS["pending"] + ", attempts = attempts - 1"),  # a snooze
        ("failed", JOB_COLUMNS["pending"] + ", run = run + 1, claims = 0, attempts = 0, rerun = false"),  # a restart
    ],
)
def test_what_workers_and_people_do_to_a_job_is_allowed(rows: Rows, before: str, change: str) -> None:
    rows.world.force(
        f"UPDATE ai_jobs SET {JOB_COLUMNS[before]}, claims = 2, attempts = 2, rerun = true WHERE id = %(id)s",
        id=rows.job,
        token=uuid4(),
    )
    token = rows.world.value("SELECT coalesce(lease_token, gen_random_uuid()) FROM ai_jobs")
    assert rows.allows(f"UPDATE ai_jobs SET {change} WHERE id = %(id)s", id=rows.job, token=token)


def test_a_refusal_says_which_job_and_what(rows: Rows) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=f"job {rows.job} cannot go from pending to done"):
        rows.world.execute("UPDATE ai_jobs SET status = 'done'")
    with pytest.raises(psycopg.errors.CheckViolation, match=f"job {rows.job} cannot change") as refused:
        rows.world.execute("UPDATE ai_jobs SET run = 7")
    assert refused.value.diag.message_detail == "pending → pending"


def test_a_conversation_has_one_active_autoreply(rows: Rows) -> None:
    rows.world.execute(
        'INSERT INTO ai_jobs (payload, conversation_id) SELECT \'{"type": "autoreply"}\', id FROM conversations'
    )
    with pytest.raises(psycopg.errors.UniqueViolation):
        rows.world.execute(
            'INSERT INTO ai_jobs (payload, conversation_id) SELECT \'{"type": "autoreply"}\', id FROM conversations'
        )


# Messages


@pytest.mark.parametrize(("before", "after"), pairs(MESSAGES))
def test_a_message_moves_along_its_arrows_alone(rows: Rows, before: str, after: str) -> None:
    message = rows.message(before)
    if "received" in (before, after) and before != after:
        with pytest.raises(psycopg.errors.CheckViolation):  # the direction forbids it too
            rows.world.execute("UPDATE messages SET status = %(status)s", status=after)
    else:
        assert rows.become(message, after) is (after in MESSAGES[before])


@pytest.mark.parametrize(("before", "after"), pairs(MESSAGES_WITH_SID))
def test_what_twilio_has_never_leaves_again(rows: Rows, before: str, after: str) -> None:
    message = rows.message(before, sid="SM1")
    assert rows.become(message, after) is (after in MESSAGES_WITH_SID[before])


@pytest.mark.parametrize("status", ["sent", "delivered", "read"])
def test_a_draft_that_was_never_tried_cannot_have_left(rows: Rows, status: str) -> None:
    message = rows.message("draft")
    rows.world.force("UPDATE messages SET send_attempt = 0 WHERE id = %(id)s", id=message)
    assert not rows.become(message, status)


@pytest.mark.parametrize("status", MESSAGES_WITH_SID)
def test_a_sid_stays_once_it_is_known(rows: Rows, status: str) -> None:
    message = rows.message(status, sid="SM1")
    for change in ("provider_sid = 'SM2'", "provider_sid = NULL"):
        assert not rows.allows(f"UPDATE messages SET {change} WHERE id = %(id)s", id=message)
    assert rows.allows("UPDATE messages SET provider_sid = 'SM1', second_sid = 'SM2' WHERE id = %(id)s", id=message)


def test_a_sid_is_learnt_with_the_state_that_it_proves(rows: Rows) -> None:
    for number, status in enumerate(("sending", "held", "failed")):
        message = rows.message(status)
        assert rows.allows(
            "UPDATE messages SET status = 'sent', provider_sid = %(sid)s WHERE id = %(id)s",
            id=message,
            sid=f"SM{number}",
        )


@pytest.mark.parametrize("status", ["draft", "held", "failed"])
@pytest.mark.parametrize("attempt", ["send_attempt", "send_attempt + 2", "0"])
def test_each_request_is_an_attempt_of_its_own(rows: Rows, status: str, attempt: str) -> None:
    message = rows.message(status)
    assert not rows.allows(
        f"UPDATE messages SET status = 'sending', send_attempt = {attempt} WHERE id = %(id)s", id=message
    )


def test_attempts_are_never_taken_back(rows: Rows) -> None:
    message = rows.message("sending")
    assert not rows.allows("UPDATE messages SET send_attempt = send_attempt - 1 WHERE id = %(id)s", id=message)
    assert rows.allows("UPDATE messages SET status = 'draft' WHERE id = %(id)s", id=message)


@pytest.mark.parametrize(
    "change",
    ["body = 'something else'", "reply_id = gen_random_uuid()", "part = 2, parts = 2", "conversation_id = %(other)s"],
)
@pytest.mark.parametrize("status", ["received", "sending", "sent", "failed"])
def test_what_a_message_is_stays(rows: Rows, status: str, change: str) -> None:
    other = rows.world.value("INSERT INTO conversations (address) VALUES ('+31600000002') RETURNING id")
    message = rows.message(status)
    assert not rows.allows(f"UPDATE messages SET {change} WHERE id = %(id)s", id=message, other=other)


def test_a_draft_s_text_may_change(rows: Rows) -> None:
    message = rows.message("draft")
    assert rows.allows("UPDATE messages SET body = 'something else' WHERE id = %(id)s", id=message)


def test_what_answers_an_inbound_message_is_free(rows: Rows) -> None:
    message = rows.message("received")
    for answer in (uuid4(), uuid4(), None):
        assert rows.allows("UPDATE messages SET answered_by = %(a)s WHERE id = %(id)s", id=message, a=answer)


def test_one_message_of_a_conversation_is_sending(rows: Rows) -> None:
    first, second = rows.message("draft"), rows.message("draft")
    assert rows.become(first, "sending")
    with pytest.raises(psycopg.errors.UniqueViolation):
        rows.become(second, "sending")


# Suggestions, imports, replays


@pytest.mark.parametrize(("before", "after"), pairs(SUGGESTIONS))
def test_a_suggestion_is_decided_on_once(rows: Rows, before: str, after: str) -> None:
    message = rows.message("draft")
    suggestion = rows.world.value(
        "INSERT INTO suggestions (conversation_id, asked_by, job_id, text, language, answers)"
        " VALUES (%(conversation)s, 'anna', %(job)s, 'x', 'nl', '{}') RETURNING id",
        conversation=rows.conversation,
        job=rows.job,
    )
    columns = {
        "open": "state = 'open', decided_at = NULL, decided_by = NULL, message_id = NULL",
        "sent": "state = 'sent', decided_at = now(), decided_by = 'anna', message_id = %(message)s",
        "rejected": "state = 'rejected', decided_at = now(), decided_by = 'anna', message_id = NULL",
    }
    rows.world.force(f"UPDATE suggestions SET {columns[before]} WHERE id = %(id)s", id=suggestion, message=message)
    moved = rows.allows(f"UPDATE suggestions SET {columns[after]} WHERE id = %(id)s", id=suggestion, message=message)
    assert moved is (after in SUGGESTIONS[before])


def an_import(rows: Rows, state: str) -> UUID:
    found: UUID = rows.world.value(
        "INSERT INTO imports (source, column_map, delimiter, encoding, rows_total, created_by)"
        " VALUES ('people.csv', '{}', ';', 'utf-8', 9, 'anna') RETURNING id"
    )
    rows.world.force(
        "UPDATE imports SET state = %(state)s, next_line = 5, rows_done = 4, added = 4,"
        " ended_at = CASE WHEN %(state)s IN ('done', 'failed') THEN now() END WHERE id = %(id)s",
        id=found,
        state=state,
    )
    return found


@pytest.mark.parametrize(("before", "after"), pairs(IMPORTS))
def test_an_import_moves_along_its_arrows_alone(rows: Rows, before: str, after: str) -> None:
    moved = rows.allows(
        "UPDATE imports SET state = %(state)s, ended_at = CASE WHEN %(state)s IN ('done', 'failed') THEN now() END"
        " WHERE id = %(id)s",
        id=an_import(rows, before),
        state=after,
    )
    assert moved is (after in IMPORTS[before])


@pytest.mark.parametrize("change", ["next_line = 4", "rows_done = 3, added = 3"])
def test_an_import_reads_no_line_twice(rows: Rows, change: str) -> None:
    assert not rows.allows(f"UPDATE imports SET {change} WHERE id = %(id)s", id=an_import(rows, "running"))


def a_replay(rows: Rows, state: str) -> UUID:
    found: UUID = rows.world.value(
        "INSERT INTO replays (who, reason, filter, rate, total) VALUES ('anna', 'x', '{}', 5, 9) RETURNING id"
    )
    rows.world.force(
        "UPDATE replays SET state = %(state)s, cursor_seq = 5, restarted = 1, joined = 1, left_out = 1, skipped = 1,"
        " stopped_by = 'anna', ended_at = CASE WHEN %(state)s <> 'running' THEN now() END WHERE id = %(id)s",
        id=found,
        state=state,
    )
    return found


@pytest.mark.parametrize(("before", "after"), pairs(REPLAYS))
def test_a_replay_moves_along_its_arrows_alone(rows: Rows, before: str, after: str) -> None:
    moved = rows.allows(
        "UPDATE replays SET state = %(state)s, ended_at = CASE WHEN %(state)s <> 'running' THEN now() END"
        " WHERE id = %(id)s",
        id=a_replay(rows, before),
        state=after,
    )
    assert moved is (after in REPLAYS[before])


@pytest.mark.parametrize("change", ["cursor_seq = 4", "restarted = 0", "joined = 0", "left_out = 0", "skipped = 0"])
def test_a_replay_looks_at_no_job_twice(rows: Rows, change: str) -> None:
    assert not rows.allows(f"UPDATE replays SET {change} WHERE id = %(id)s", id=a_replay(rows, "running"))


def test_a_replay_goes_no_further_when_it_has_ended(rows: Rows) -> None:
    assert not rows.allows("UPDATE replays SET cursor_seq = 6 WHERE id = %(id)s", id=a_replay(rows, "done"))
    stopped = a_replay(rows, "stopped")
    assert not rows.allows("UPDATE replays SET cursor_seq = 6 WHERE id = %(id)s", id=stopped)
    assert rows.allows("UPDATE replays SET state = 'running', ended_at = NULL WHERE id = %(id)s", id=stopped)
    assert rows.allows("UPDATE replays SET cursor_seq = 6 WHERE id = %(id)s", id=stopped)
