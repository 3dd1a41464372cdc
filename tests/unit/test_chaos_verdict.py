"""The chaos run's judge: it finds nothing where all is well, and each thing that must not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bench.chaos_script import SAME, Said, answer_to, numbers_in, write
from bench.chaos_verdict import CameIn, JobRow, Record, Talk, Verdict, WentOut
from local.standins.twilio_callbacks import Posted
from local.standins.twilio_messages import Message

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TALK = UUID(int=1)
QUESTION, REPLY = UUID(int=2), UUID(int=3)
SECOND, SECOND_REPLY = UUID(int=4), UUID(int=5)


def accepted(sid: str, message: UUID, body: str) -> Message:
    return Message(sid, "whatsapp:+31", "whatsapp:+32", body, "outbound-api", "sent", 0.0, 0.0,
                   status_callback=f"http://here/api/twilio/status?message={message}&try=1")  # fmt: skip


def row(message: UUID, seq: int, body: str, sid: str) -> WentOut:
    """A reply of one part, whose id is its reply's here."""
    return WentOut(message, TALK, message, seq, 1, 1, body, "sent", "ai", "answer", None, sid, None, "answer", "model",
                   [NOW])  # fmt: skip


def record() -> Record:
    """Two questions of one employee, each answered."""
    bodies = [answer_to("nr000001"), answer_to("nr000002")]
    return Record(
        said={f"SM{n}": Said(n, "+31", "question", "", 0.0, (0.0,)) for n in (1, 2)},
        sent=[accepted("SMa", REPLY, bodies[0]), accepted("SMb", SECOND_REPLY, bodies[1])],
        posted=[],
        paid=[frozenset({1}), frozenset({2})],
        came_in=[
            CameIn("SM1", QUESTION, TALK, 1, REPLY, REPLY, NOW, True),
            CameIn("SM2", SECOND, TALK, 3, SECOND_REPLY, SECOND_REPLY, NOW, True),
        ],
        went_out=[row(REPLY, 2, bodies[0], "SMa"), row(SECOND_REPLY, 4, bodies[1], "SMb")],
        jobs={job: JobRow(job, TALK, "autoreply", "done", None, None, None, 0) for job in (REPLY, SECOND_REPLY)},
        talks={TALK: Talk(TALK, "+31", False, False)},
    )


def violations(found: Record) -> set[str]:
    return {violation.partition(":")[0] for violation in Verdict(found).judge().violations}


def test_all_is_well() -> None:
    verdict = Verdict(record()).judge()
    assert verdict.violations == []
    assert verdict.counts["answered"] == 2


def again(found: Record) -> None:
    found.sent = [*found.sent, accepted("SMc", REPLY, found.went_out[0].body)]


def borrowed(found: Record) -> None:
    found.went_out[1] = replace(found.went_out[1], provider_sid="SMa")


def swapped(found: Record) -> None:
    found.sent = list(reversed(found.sent))


def lost(found: Record) -> None:
    del found.came_in[0]


def unheard(found: Record) -> None:
    found.went_out[0] = replace(found.went_out[0], status="failed", provider_sid=None)


def imagined(found: Record) -> None:
    found.sent = found.sent[1:]


def silent(found: Record) -> None:
    imagined(found)
    found.went_out[0] = replace(found.went_out[0], status="held", provider_sid=None)


def opened(found: Record) -> None:
    found.came_in[0] = replace(found.came_in[0], answered_by=None)


def swallowed(found: Record) -> None:
    found.came_in[0] = replace(found.came_in[0], answered_by=QUESTION)


def misplaced(found: Record) -> None:
    found.came_in[0] = replace(found.came_in[0], answered_by=SECOND_REPLY)


def dead(found: Record) -> None:
    imagined(found)
    del found.went_out[0]
    found.jobs[REPLY] = replace(found.jobs[REPLY], status="failed")


def dear(found: Record) -> None:
    found.paid = [*found.paid, frozenset({1})]


def pestered(found: Record) -> None:
    found.said["SM3"] = Said(3, "+31", "stop", "STOP", 0.0, (0.0,))
    found.came_in.append(CameIn("SM3", UUID(int=9), TALK, 5, UUID(int=9), None, NOW, True))
    found.posted = [Posted("SM3", "", {}, 200, None, (NOW - timedelta(seconds=1)).timestamp())]
    found.talks[TALK] = replace(found.talks[TALK], is_opted_out=True)


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (again, {"accepted twice", "answered twice", "out of order", "answers out of order"}),
        (borrowed, {"settled by another message's evidence"}),
        (swapped, {"out of order", "answers out of order"}),
        (lost, {"never taken in", "answers other questions than it covers"}),
        (unheard, {"accepted, but the row does not know"}),
        (imagined, {"never accepted, but the row says so", "settled by another message's evidence",
                    "covered by nothing"}),
        (silent, {"held without a flag"}),
        (opened, {"still open", "answers other questions than it covers"}),
        (swallowed, {"settled without a reply", "answers other questions than it covers"}),
        (misplaced, {"answers other questions than it covers"}),
        (dead, {"dead without a flag"}),
        (dear, {"paid for twice"}),
        (pestered, {"sent after STOP"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
def test_it_finds(breaks: Callable[[Record], None], expected: set[str]) -> None:
    found = record()
    breaks(found)
    assert violations(found) == expected


def test_a_script_is_the_same_for_the_same_seed_and_has_all_that_can_happen() -> None:
    script = write(2000, 100, 60.0, 5)
    assert script == write(2000, 100, 60.0, 5)
    assert script != write(2000, 100, 60.0, 6)
    assert len({said.number for said in script}) == 2000
    assert {said.kind for said in script} == {"question", "same", "long", "thanks", "stop", "start"}
    assert {len(said.webhooks) for said in script} == {0, 1, 2}
    assert all(said.webhooks for said in script if said.kind in ("stop", "start"))


def test_an_answer_names_what_it_answers_but_for_those_that_are_the_same_on_purpose() -> None:
    assert numbers_in(answer_to("Hoe zit het met nr000007?\nEn waar staat nr000008g?")) == {7}
    assert answer_to("En waar staat nr000008g?") == SAME
    assert len(answer_to("Alles over nr000009u?")) > 1600
