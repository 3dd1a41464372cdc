"""`/api/metrics`: who may read it, and its text, line by line as the format's description has it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from shared.app import App
from shared.db.pool import Database
from shared.request import Request, Response
from shared.webhooks.exposition import Gauge, exposed
from tests.fakes.world import World, settings

TOKEN = "metrics-token-ü-0123456789"
HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\\n]|\\\\|\\n)*)")
TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary|untyped)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)")

type Labels = frozenset[tuple[str, str]]


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """The samples by metric. Raises AssertionError for what is not the format."""
    assert text.endswith("\n")
    found: dict[str, dict[Labels, float]] = {}
    helped: str | None = None
    current = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP"):
            match = HELP.fullmatch(line)
            assert match, line
            helped = match[1]
            continue
        if line.startswith("# TYPE"):
            match = TYPE.fullmatch(line)
            assert match, line
            assert match[1] == helped, "HELP stands before TYPE"
            assert match[1] not in found, "all of a metric is one group"
            current, found[match[1]] = match[1], {}
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] == current
        labels = LABEL.findall(match[2] or "")
        assert "".join(f'{name}="{value}",' for name, value in labels).rstrip(",") == (match[2] or "")
        key = frozenset(
            (name, re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value)) for name, value in labels
        )
        assert len(key) == len(labels)
        assert key not in found[match[1]], "one sample a set of labels"
        found[match[1]][key] = float(match[3])
    assert all(found.values())
    return found


def labels(**given: str) -> Labels:
    return frozenset(given.items())


@pytest.fixture
def world(database: Database) -> World:
    found = World(database, METRICS_TOKEN=TOKEN)
    found.execute("TRUNCATE webhook_events, webhook_endpoints, ai_jobs, audit_log CASCADE")
    return found


def ask(app: App, authorization: Any = f"Bearer {TOKEN}") -> Response:
    headers = {} if authorization is None else {"authorization": authorization}
    return app.metrics(Request("http://127.0.0.1/api/metrics", headers, b""))


def test_without_the_setting_there_is_nothing(database: Database) -> None:
    for given in (None, "Bearer ", f"Bearer {TOKEN}"):
        assert ask(World(database).app, given).status == 404


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", "bearer  ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     f"Bearer {TOKEN}, Bearer {TOKEN}", f"Bearer\x00{TOKEN}", "Bearer \ud800", "Bearer \x00\r\n", "Bearer " + "a" * 1_000_000,
     f"Bearer {TOKEN.encode().decode('latin-1')}", "é" * 300],
    ids=["none", "empty", "bare", "blank", "blanks", "no-scheme", "basic", "longer", "shorter", "twice", "nul", "surrogate",
         "control", "huge", "other-encoding", "not-ascii"],
)  # fmt: skip
def test_a_wrong_or_hostile_header_is_401(world: World, given: str | None) -> None:
    answer = ask(world.app, given)
    assert answer.status == 401
    assert answer.headers == {"WWW-Authenticate": "Bearer"}
    assert TOKEN not in answer.body


def test_the_token_opens_it_and_the_scheme_may_be_written_in_any_case(world: World) -> None:
    for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN}"):
        answer = ask(world.app, given)
        assert answer.status == 200
        assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert "token" not in str(parsed(answer.body)).lower()


def test_a_database_that_is_away_is_503() -> None:
    nowhere = Database("postgresql://127.0.0.1:1/none?connect_timeout=1", 1)
    answer = ask(App(settings(METRICS_TOKEN=TOKEN), database=nowhere))
    assert (answer.status, answer.body) == (503, "The database does not answer.")
    nowhere.close()


def test_an_empty_database_gives_the_queue_and_no_figure_that_is_not_known(world: World) -> None:
    found = parsed(ask(world.app).body)
    assert found["antwoord_jobs"][labels(type="deliver_event", state="pending")] == 0
    assert found["antwoord_oldest_due_seconds"][labels(type="autoreply")] == 0
    assert found["antwoord_delivery_first_tries"] == {labels(window="5m"): 0, labels(window="1h"): 0}
    assert found["antwoord_delivery_dead_letters_per_minute"] == {labels(window="5m"): 0, labels(window="1h"): 0}
    assert "antwoord_delivery_first_attempt_success_ratio" not in found
    assert not any(name.startswith("antwoord_endpoint") for name in found)


def test_the_queue_and_the_deliveries_are_in_figures(world: World) -> None:
    hostile = 'a "quoted" \\ back\nslash'
    world.execute("INSERT INTO ai_jobs (payload, next_run_at) VALUES (jsonb_build_object('type', %(type)s::text),"
                  " now() - interval '100 s'), ('{\"type\": \"suggest\"}', now() + interval '1 h')", type=hostile)  # fmt: skip
    world.force("INSERT INTO ai_jobs (payload, status) VALUES ('{\"type\": \"deliver_event\"}', 'failed')")
    names = {}
    for name in ("broken", "quiet", "well"):
        names[name] = uuid4()
        world.execute(
            "INSERT INTO webhook_endpoints (id, name, url, secret, created_by, open_until, disabled_at, disabled_reason)"
            " VALUES (%(id)s, %(name)s, 'https://x.example.org', '\\x00', 'test', CASE WHEN %(name)s = 'broken' THEN now() END,"
            " CASE WHEN %(name)s = 'quiet' THEN now() END, CASE WHEN %(name)s = 'quiet' THEN 'gone' END)",
            id=names[name], name=name,
        )  # fmt: skip
    event = uuid4()
    world.execute("INSERT INTO webhook_events (id, type, data) VALUES (%(id)s, 'x', '{}')", id=event)
    # Ten minutes ago one that took three tries and 8 seconds; now one at once in half a second, one that waits, one that died.
    for name, state, outcomes, age, latency in (
        ("well", "delivered", ["failed", "failed", "delivered"], 600, 8.0), ("well", "delivered", ["delivered"], 1, 0.5),
        ("broken", "waiting", ["failed"], 1, None), ("broken", "waiting", [], 1, None), ("broken", "dead", ["failed"], 1, None),
    ):  # fmt: skip
        key = uuid4()
        world.execute(
            "INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, tries, delivered_at, died_at,"
            " latency_seconds) SELECT %(id)s, %(event)s, %(endpoint)s, gen_random_uuid(), %(state)s, %(tries)s,"
            " CASE WHEN %(state)s = 'delivered' THEN at END, CASE WHEN %(state)s = 'dead' THEN at END, %(latency)s"
            " FROM (SELECT now() - make_interval(secs => %(age)s) AS at) moment",
            id=key, event=event, endpoint=names[name], state=state, tries=len(outcomes), latency=latency, age=age,
        )  # fmt: skip
        for number, outcome in enumerate(outcomes, 1):
            world.execute(
                "INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at, ended, outcome)"
                " SELECT %(id)s, %(number)s, %(endpoint)s, 1, at, at, at, %(outcome)s"
                " FROM (SELECT now() - make_interval(secs => %(age)s) AS at) moment",
                id=key, number=number, endpoint=names[name], outcome=outcome, age=age,
            )  # fmt: skip
    found = parsed(ask(world.app).body)
    assert found["antwoord_jobs_due"][labels(type=hostile)] == 1
    assert 100 <= found["antwoord_oldest_due_seconds"][labels(type=hostile)] < 160
    assert found["antwoord_jobs"][labels(type="suggest", state="pending")] == 1
    assert found["antwoord_jobs_due"][labels(type="suggest")] == 0
    assert found["antwoord_dead_letters"][labels(type="deliver_event")] == 1
    assert found["antwoord_jobs"][labels(type="deliver_event", state="failed")] == 1
    assert found["antwoord_endpoint_open"][labels(endpoint="broken")] == 1
    assert found["antwoord_endpoint_disabled"] == {
        labels(endpoint=name): float(name == "quiet") for name in ("broken", "quiet", "well")
    }
    assert found["antwoord_deliveries_waiting"][labels(endpoint="broken")] == 2
    assert found["antwoord_deliveries_retrying"][labels(endpoint="broken")] == 1
    success = "first_attempt_success_ratio"
    assert found[f"antwoord_delivery_{success}"] == {labels(window="5m"): 1 / 3, labels(window="1h"): 1 / 4}
    assert found[f"antwoord_endpoint_{success}"] == {
        labels(endpoint="broken", window="5m"): 0, labels(endpoint="broken", window="1h"): 0,
        labels(endpoint="well", window="5m"): 1, labels(endpoint="well", window="1h"): 0.5,
    }  # fmt: skip
    assert found["antwoord_endpoint_tries_max"][labels(endpoint="well", window="1h")] == 3
    assert found["antwoord_endpoint_tries_mean"][labels(endpoint="well", window="1h")] == 2
    assert found["antwoord_endpoint_tries_max"][labels(endpoint="well", window="5m")] == 1
    assert found["antwoord_delivery_dead_letters_per_minute"][labels(window="5m")] == pytest.approx(0.2)
    assert found["antwoord_delivery_latency_seconds"][labels(window="1h", quantile="0.99")] == 8
    assert found["antwoord_delivery_latency_seconds"][labels(window="5m", quantile="0.99")] == 0.5


def test_text_is_escaped_and_figures_are_written_as_the_format_has_them() -> None:
    text = exposed([
        Gauge("a", "one\\two\nthree \"four\"", [({"x": 'a"b\\c\nd'}, 1), ({"x": "é"}, float("nan")), ({"x": ""}, float("inf")),
                                              ({"x": "-"}, float("-inf")), ({"x": "none"}, None), ({}, 1e-7)]),
        Gauge("b", "nothing", [({}, None)]),
    ])  # fmt: skip
    assert text == (
        '# HELP a one\\\\two\\nthree "four"\n# TYPE a gauge\na{x="a\\"b\\\\c\\nd"} 1\na{x="é"} NaN\na{x=""} +Inf\n'
        'a{x="-"} -Inf\na 1e-07\n'
    )


def test_what_is_shown_is_of_this_moment(world: World) -> None:
    before = parsed(ask(world.app).body)["antwoord_jobs"][labels(type="suggest", state="pending")]
    world.execute(
        'INSERT INTO ai_jobs (payload, next_run_at) VALUES (\'{"type": "suggest"}\', %(at)s)', at=datetime.now(UTC)
    )
    assert parsed(ask(world.app).body)["antwoord_jobs"][labels(type="suggest", state="pending")] == before + 1
