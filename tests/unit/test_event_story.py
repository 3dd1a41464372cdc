"""An event's way as a story: rounds, tries that go on or were broken off, and what can be done about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from shared.ops.event_story import Way, tell
from shared.ops.events_query import Asked
from shared.webhooks.events import Attempt, DeliveryRow

NOW = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
ID, JOB, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def delivery(**changes: Any) -> DeliveryRow:
    fields: dict[str, Any] = {
        "id": ID, "endpoint_id": OTHER, "endpoint": "payroll", "endpoint_disabled": None, "state": "waiting", "job_id": JOB,
        "replay_of": None, "replay_id": None, "tries": 1, "promised_at": None, "created_at": NOW, "delivered_at": None,
        "died_at": None, "job_status": "pending", "next_try_at": NOW, "attempts": 1, "max_attempts": 8, "run": 1,
        "error_class": None, "last_error": None, "closed_reason": None,
    }  # fmt: skip
    return DeliveryRow(**fields | changes)


def attempt(number: int, minute: float, *, run: int = 1, outcome: Any = "failed", gives_up: float = 1.0) -> Attempt:
    started = NOW + timedelta(minutes=minute)
    ended = None if outcome is None else started + timedelta(seconds=2)
    return Attempt(ID, number, run, False, "payroll", started, started + timedelta(minutes=gives_up), ended,
                   None if outcome is None else 2000.0, outcome, 503, "unavailable", "HTTP 503", "")  # fmt: skip


def asked(minute: float, what: str = "resend_delivery", made: UUID | None = ID, reason: str | None = "why") -> Asked:
    return Asked(NOW + timedelta(minutes=minute), "anna", what, str(ID), reason, "payroll", made, None)


def outcomes(way: Way) -> list[list[tuple[int, str]]]:
    return [[(step.number, step.outcome) for step in round_.steps] for round_ in way.rounds]


def test_each_round_counts_its_tries_anew_and_says_who_asked_for_it() -> None:
    attempts = [attempt(1, 0), attempt(2, 10), attempt(3, 30, run=2, outcome="delivered")]
    way = tell(delivery(state="delivered", job_status="done"), attempts, [asked(20)], NOW)
    assert outcomes(way) == [[(1, "failed"), (2, "failed")], [(1, "delivered")]]
    assert way.rounds[0].asked is None
    assert way.rounds[1].asked == asked(20)
    assert way.rounds[0].steps[1].after == 598
    assert way.asked is None, "it was not made by a person"
    assert way.can_be_sent_again


def test_what_was_asked_for_and_not_tried_yet_is_a_round_without_tries() -> None:
    way = tell(delivery(), [attempt(1, 0)], [asked(5)], NOW)
    assert outcomes(way) == [[(1, "failed")], []]
    assert way.rounds[1].asked == asked(5)
    assert not way.can_be_sent_again


def test_a_try_without_an_end_goes_on_until_it_gives_up_and_was_broken_off_then() -> None:
    going = tell(delivery(), [attempt(1, -0.5, outcome=None)], [], NOW)
    assert outcomes(going) == [[(1, "running")]]
    assert going.runs_now
    broken = tell(delivery(), [attempt(1, -2, outcome=None)], [], NOW)
    assert outcomes(broken) == [[(1, "interrupted")]]
    assert not broken.runs_now


def test_the_last_try_is_known_as_such_and_what_a_person_sent_elsewhere_is_told() -> None:
    way = tell(delivery(attempts=7), [], [asked(1, made=OTHER)], NOW)
    assert (way.next_number, way.is_last_try) == (8, True)
    assert not tell(delivery(attempts=6), [], [], NOW).is_last_try
    assert way.repeats == [asked(1, made=OTHER)]
    assert way.rounds == []
    made = tell(delivery(replay_of=OTHER, attempts=0), [], [asked(1)], NOW)
    assert made.asked == asked(1)
    tried = tell(delivery(replay_of=OTHER), [attempt(1, 2)], [asked(1)], NOW)
    assert tried.rounds[0].asked is None, "it is told once, above the first round"


def test_what_died_without_a_try_and_was_sent_again_says_who_had_it_sent() -> None:
    """Its endpoint was disabled: the first run has no try, so the first one that there is belongs to the second round."""
    tried = tell(delivery(state="delivered", run=2), [attempt(1, 20, run=2, outcome="delivered")], [asked(10)], NOW)
    assert outcomes(tried) == [[], [(1, "delivered")]]
    assert (tried.rounds[0].asked, tried.rounds[1].asked) == (None, asked(10))
    waits = tell(delivery(run=2, attempts=0), [], [asked(10)], NOW)
    assert outcomes(waits) == [[], []]
    assert waits.rounds[1].asked == asked(10)
