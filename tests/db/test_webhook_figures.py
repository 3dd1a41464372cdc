"""The four figures: against brute force over random rows, their definitions one by one, their plans, `stats` and the chore."""

from __future__ import annotations

import json
import logging
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from cli import __main__ as command
from cli.output import Status
from shared.db.pool import Database
from shared.webhooks import figures
from shared.webhooks.figures import Bucket, Figures, Latency, Period
from shared.webhooks.gauges import log_gauges
from tests.fakes.world import World

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
ADD_ENDPOINT = """
    INSERT INTO webhook_endpoints (id, name, url, secret, created_by)
    VALUES (%(id)s, %(name)s, 'https://x.example.org/', '\\x00', 'test')
"""
ADD_EVENT = """
    INSERT INTO webhook_events (id, type, data, received_at, held_reason) VALUES (%(id)s, 'x', '{}', %(at)s, %(held)s)
"""
ADD_DELIVERY = """
    INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, tries, delivered_at, died_at, latency_seconds,
        created_at)
    VALUES (%(id)s, %(event)s, %(endpoint)s, gen_random_uuid(), %(state)s, %(tries)s, %(delivered)s, %(died)s, %(latency)s,
        %(at)s)
"""
ADD_ATTEMPT = """
    INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at, ended, outcome)
    VALUES (%(id)s, %(number)s, %(endpoint)s, 1, %(ended)s::timestamptz - interval '1 second', %(ended)s, %(closed)s, %(outcome)s)
"""


@pytest.fixture
def world(database: Database) -> World:
    found = World(database)
    found.execute("TRUNCATE webhook_events, webhook_endpoints, ai_jobs, audit_log CASCADE")
    return found


@dataclass(frozen=True)
class Try:
    """One row of webhook_attempts; `ended` is None while it goes on."""

    endpoint: UUID
    number: int
    ended: datetime | None
    outcome: str | None


@dataclass(frozen=True)
class Delivery:
    """One row of webhook_deliveries."""

    endpoint: UUID
    state: str
    tries: Sequence[Try]
    delivered: datetime | None
    died: datetime | None
    latency: float | None


def endpoints_of(world: World, count: int) -> list[UUID]:
    found = [uuid4() for _ in range(count)]
    for number, endpoint in enumerate(found):
        world.execute(ADD_ENDPOINT, id=endpoint, name=f"endpoint-{number}")
    return found


def store(world: World, rows: Sequence[Delivery]) -> None:
    event = uuid4()
    world.execute(ADD_EVENT, id=event, at=START, held=None)
    with world.database.transaction() as connection:
        for row in rows:
            key = uuid4()
            connection.execute(ADD_DELIVERY.encode(), {
                "id": key, "event": event, "endpoint": row.endpoint, "state": row.state, "tries": len(row.tries),
                "delivered": row.delivered, "died": row.died, "latency": row.latency, "at": START,
            })  # fmt: skip
            for one in row.tries:
                connection.execute(ADD_ATTEMPT.encode(), {
                    "id": key, "number": one.number, "endpoint": row.endpoint, "closed": one.ended, "outcome": one.outcome,
                    "ended": one.ended or START,
                })  # fmt: skip


def some_rows(chance: random.Random, endpoints: Sequence[UUID], count: int) -> list[Delivery]:
    """Deliveries of a few hours in every state; some moments are exactly on the edge of the period or of a step."""

    def moment() -> datetime:
        if chance.random() < 0.2:
            return START + timedelta(minutes=chance.choice((0, 5, 60, 120, 180, 240)))
        return START + timedelta(seconds=chance.uniform(-3600, 5 * 3600))

    rows = []
    for _ in range(count):
        endpoint, state = chance.choice(endpoints), chance.choice(("delivered",) * 5 + ("waiting", "waiting", "dead"))
        ended = sorted(moment() for _ in range(min(int(chance.expovariate(0.8)) + (state == "delivered"), 9)))
        tries = [
            Try(endpoint, number, at, chance.choice(("failed", "interrupted"))) for number, at in enumerate(ended, 1)
        ]
        if state == "delivered":
            tries[-1] = Try(endpoint, len(tries), ended[-1], "delivered")
        elif state == "waiting" and chance.random() < 0.3:
            tries.append(Try(endpoint, len(tries) + 1, None, None))
        rows.append(
            Delivery(
                endpoint,
                state,
                tries,
                ended[-1] if state == "delivered" else None,
                moment() if state == "dead" or chance.random() < 0.1 else None,
                round(chance.expovariate(0.1), 6) if state == "delivered" and chance.random() < 0.9 else None,
            )
        )
    return rows


def rank(latencies: list[float]) -> Latency | None:
    if not latencies:
        return None
    latencies = sorted(latencies)
    return Latency(*(latencies[max(math.ceil(share * len(latencies) - 1e-9) - 1, 0)] for share in (0.5, 0.95, 0.99)))


def brute(rows: Sequence[Delivery], period: Period) -> Figures:
    def within(moment: datetime | None) -> bool:
        return moment is not None and period.since <= moment < period.until

    tries = [one for row in rows for one in row.tries if within(one.ended)]
    first = [one for one in tries if one.number == 1]
    return Figures(
        period, len(first), len([one for one in first if one.outcome == "delivered"]),
        dict(Counter(one.number for one in tries if one.outcome == "delivered")),
        dict(Counter(len(row.tries) for row in rows if row.state == "waiting")),
        len([row for row in rows if within(row.died)]),
        rank([row.latency for row in rows if within(row.delivered) and row.latency is not None]),
    )  # fmt: skip


def test_they_are_what_brute_force_finds_of_all_and_of_each_over_any_period(world: World) -> None:
    chance = random.Random(7)
    endpoints = endpoints_of(world, 3)
    rows = some_rows(chance, endpoints, 400)
    store(world, rows)
    periods = [Period(START, START + timedelta(hours=4)), Period(START, START + timedelta(minutes=5))]
    for _ in range(12):
        since = START + timedelta(seconds=chance.uniform(-3600, 4 * 3600))
        periods.append(Period(since, since + timedelta(seconds=chance.choice((1, 59, 300, 3600, 10_000, 40_000)))))
    with world.database.connection() as connection:
        for period in periods:
            report = figures.read(connection, period)
            assert report.total == brute(rows, period)
            for endpoint in endpoints:
                expected = brute([row for row in rows if row.endpoint == endpoint], period)
                assert report.of(endpoint) == expected
                alone = figures.read(connection, period, endpoint=endpoint)
                assert alone.total == alone.of(endpoint) == expected


def test_the_plots_steps_are_the_figures_of_their_time(world: World) -> None:
    chance = random.Random(11)
    endpoints = endpoints_of(world, 2)
    rows = some_rows(chance, endpoints, 300)
    store(world, rows)
    with world.database.connection() as connection:
        for seconds, step in ((3600, 60), (3 * 3600, 300), (4 * 3600 + 1, 300), (86_400, 1800)):
            period = Period(START, START + timedelta(seconds=seconds))
            assert period.step == step
            for endpoint in (None, endpoints[0]):
                found = figures.buckets(connection, period, endpoint=endpoint)
                assert len(found) == math.ceil(seconds / step)
                chosen = [row for row in rows if endpoint in (None, row.endpoint)]
                for number, bucket in enumerate(found):
                    since = START + timedelta(seconds=number * step)
                    of = brute(chosen, Period(since, min(since + timedelta(seconds=step), period.until)))
                    assert bucket == Bucket(since, of.first_tries, of.first_delivered, of.died, of.latency)


def test_any_period_has_few_steps() -> None:
    for seconds in (1, 60, 3601, 86_400, 7 * 86_400, 30 * 86_400, 366 * 86_400, 3650 * 86_400):
        period = Period(START, START + timedelta(seconds=seconds))
        assert math.ceil(period.seconds / period.step) <= figures.BUCKETS_AT_MOST


def test_nothing_gives_no_figures_instead_of_zeros(world: World) -> None:
    with world.database.connection() as connection:
        report = figures.read(connection, figures.last(connection, 60))
        steps = figures.buckets(connection, report.total.period)
    assert (report.total.first_attempt_success, report.total.mean_tries, report.total.most_tries) == (None, None, None)
    assert report.total.latency is None
    assert report.endpoints == {}
    assert {step.first_attempt_success for step in steps} == {None}


class One:
    """One delivery of an event that was received a minute ago."""

    def __init__(self, world: World, *, held: str | None = None) -> None:
        self.world, self.event, self.id = world, uuid4(), uuid4()
        self.endpoint = endpoints_of(world, 1)[0]
        world.execute(ADD_EVENT, id=self.event, at=datetime.now(UTC) - timedelta(minutes=1), held=held)
        self.add(self.id)

    def add(self, key: UUID) -> None:
        self.world.execute(
            ADD_DELIVERY, id=key, event=self.event, endpoint=self.endpoint, state="waiting", tries=0, delivered=None, died=None,
            latency=None, at=START,
        )  # fmt: skip

    def becomes(self, state: str, key: UUID | None = None) -> None:
        self.world.execute(
            "UPDATE webhook_deliveries SET state = %(state)s, delivered_at = CASE WHEN %(state)s = 'delivered' THEN now() END"
            " WHERE id = %(id)s",
            state=state,
            id=key or self.id,
        )

    def figures(self) -> Figures:
        with self.world.database.connection() as connection:
            return figures.read(connection, figures.last(connection, 600)).total


def test_latency_is_from_the_receipt_to_the_acceptance(world: World) -> None:
    one = One(world)
    assert one.figures().latency is None
    one.becomes("delivered")
    found = one.figures().latency
    assert found is not None
    assert 60 <= found.p50 == found.p99 < 120


def test_a_death_is_counted_when_it_happens_and_what_a_person_revived_has_no_latency(world: World) -> None:
    one = One(world)
    one.becomes("dead")
    assert one.figures().died == 1
    assert one.figures().died_a_minute == pytest.approx(0.1, rel=1e-3)
    one.becomes("waiting")
    one.becomes("delivered")
    assert one.figures().died == 1, "it did die"
    assert one.figures().latency is None


def test_what_a_person_sent_again_or_released_has_no_latency(world: World) -> None:
    one = One(world)
    again = uuid4()
    one.add(again)
    world.execute("UPDATE webhook_deliveries SET replay_of = %(of)s WHERE id = %(id)s", of=one.id, id=again)
    one.becomes("delivered", again)
    assert one.figures().latency is None
    world.execute("TRUNCATE webhook_endpoints CASCADE")
    released = One(world, held="numbers without a source")
    released.becomes("delivered")
    assert released.figures().latency is None


def test_the_chore_logs_one_line_of_json(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[dict[str, Any]] = []

    def log() -> None:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="antwoord"), world.database.connection() as connection:
            log_gauges(connection)
        lines.append(json.loads("".join(record.message for record in caplog.records)))

    log()
    endpoint = endpoints_of(world, 1)[0]
    now = datetime.now(UTC)
    failed, delivered = Try(endpoint, 1, now, "failed"), Try(endpoint, 1, now, "delivered")
    store(world, [Delivery(endpoint, "waiting", [failed], None, None, None)]
          + [Delivery(endpoint, "delivered", [delivered], now, None, 1.0)] * 3)  # fmt: skip
    for job_type, seconds in (("deliver_event", 90), ("deliver_event", -3600), ("autoreply", 9)):
        world.execute(
            "INSERT INTO ai_jobs (payload, next_run_at)"
            " VALUES (jsonb_build_object('type', %(type)s::text), now() - make_interval(secs => %(seconds)s))",
            type=job_type,
            seconds=seconds,
        )
    world.force("""INSERT INTO ai_jobs (payload, status, closed_at) VALUES ('{"type": "suggest"}', 'failed', NULL)""")
    log()
    world.execute("UPDATE webhook_endpoints SET open_until = now()")
    log()
    world.execute("UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = 'gone'")
    log()
    assert [line["breakers_open"] for line in lines] == [0, 0, 1, 0]
    del lines[2:], lines[1]["breakers_open"]
    nothing = {
        "event": "gauges", "dead_letters": 0, "oldest_due_seconds": 0.0, "deliveries_due": 0, "retry_depth": 0,
        "breakers_open": 0,
    }  # fmt: skip
    assert lines[0] == nothing
    assert 90 <= lines[1].pop("oldest_due_seconds") < 150
    assert lines[1] == {
        "event": "gauges", "dead_letters": 1, "first_attempt_success": 0.75, "deliveries_due": 1, "retry_depth": 1,
        "delivery_p95_seconds": 1.0, "delivery_p99_seconds": 1.0,
    }  # fmt: skip


def test_the_timer_does_the_chore(world: World) -> None:
    world.execute("TRUNCATE chores")
    world.app.on_timer()
    assert world.value("SELECT count(*) FROM chores WHERE name = 'gauges'") == 1


def test_stats_show_them_of_all_and_of_each_endpoint(
    world: World, database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    first, second = endpoints_of(world, 2)
    now = datetime.now(UTC)
    tries = [Try(first, 1, now, "failed"), Try(first, 2, now, "delivered")]
    store(world, [Delivery(first, "delivered", tries, now, None, 12.5), Delivery(second, "dead", [], None, now, None)])
    assert command.main(["stats", "--json", "--hours", "0.5"]) == Status.DONE
    found = json.loads(capsys.readouterr().out)["deliveries"]
    assert found["endpoints"]["endpoint-0"] == {
        "first_tries": 1, "first_attempt_success": 0, "delivered": 1, "mean_tries": 2, "most_tries": 2, "tries": {"2": 1},
        "waiting": 0, "waiting_again": 0, "died": 0, "died_a_minute": 0,
        "latency_seconds": {"p50": 12.5, "p95": 12.5, "p99": 12.5},
    }  # fmt: skip
    assert (found["all"]["died"], found["endpoints"]["endpoint-1"]["latency_seconds"]) == (1, None)
    assert found["all"]["died_a_minute"] == pytest.approx(1 / 30, rel=1e-3)
    assert command.main(["stats"]) == Status.DONE
    shown = " ".join(capsys.readouterr().out.split())
    assert "deliveries of the last 24 hours:" in shown
    assert "endpoint-0 1 0.00% 1 2.00 2 0 0 0 0 12.5 s 12.5 s 12.5 s" in shown
    assert "endpoint-1 0 – 0 – – 0 0 1 0.000694 – – –" in shown
    for hours in ("0", "nan", "inf", "1e300"):
        assert command.main(["stats", "--hours", hours]) == Status.USAGE
    assert command.main(["stats", "--hours", "1000000"]) == Status.DONE
