"""What a month costs: the arithmetic, by values that can be checked by hand, and that the document shows what it gives."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bench.cost import (
    DAYS,
    DOCUMENT,
    LOADS,
    SMALL,
    Load,
    Prices,
    Shape,
    answers_a_second,
    cost_table,
    filled,
    functions,
    monthly,
    need,
    read_values,
    tables,
    timer_seconds,
    wake_seconds,
    web_tests,
    webhook_seconds,
)
from shared import settings

SHAPE, PRICES = Shape(), Prices()
IDLE = LOADS[0]


def test_the_document_shows_what_the_arithmetic_gives() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert filled(text, tables(SHAPE, PRICES)) == text, "run python -m bench.cost"


def test_the_shape_is_the_shipped_settings() -> None:
    shipped = settings.load({"DATABASE_URL": "postgresql://x/y"}, only=["database_url"])
    assert (SHAPE.job_concurrency, SHAPE.pool, SHAPE.settle_seconds) == (
        shipped.job_concurrency,
        shipped.db_pool_max,
        shipped.settle_seconds,
    )
    assert shipped.poll_schedule == "*/5 * * * * *"
    assert SHAPE.poll_seconds == 5.0


def test_an_idle_timer_is_at_work_for_a_fifth_of_the_month() -> None:
    assert timer_seconds(IDLE, SHAPE) == pytest.approx(DAYS * 86_400 / 5)
    every_second = replace(SHAPE, poll_seconds=1.0)
    assert timer_seconds(IDLE, every_second) == pytest.approx(DAYS * 86_400)
    assert timer_seconds(IDLE, replace(SHAPE, poll_seconds=0.5)) == pytest.approx(DAYS * 86_400)  # no more than always


def test_the_idle_timer_by_hand() -> None:
    # 525,600 runs of a second with 2 GB: 1,051,200 GB-s, 100,000 of them free, at 26 millionths; 275,600 paid runs.
    assert monthly(IDLE, SHAPE, PRICES)["Functions: the timer"] == pytest.approx(951_200 * 0.000026 + 275_600 * 0.4e-6)


def test_what_is_free_is_not_paid_and_never_negative() -> None:
    assert functions(1000.0, 1000.0, SHAPE, PRICES) == 0.0
    assert functions(1000.0, 0.0, SHAPE, PRICES, free_share=0.0) == pytest.approx(2000 * 0.000026)


def test_with_many_messages_nobody_works_more_than_all_the_time_but_jobs_take_more_instances() -> None:
    many = Load(500_000, SMALL)
    busy = DAYS * 3600 * SHAPE.busy_hours
    assert timer_seconds(many, SHAPE) == pytest.approx(DAYS * 3600 * (SHAPE.busy_hours + 14 * 0.2), rel=1e-3)
    assert webhook_seconds(many, SHAPE) == pytest.approx(busy + web_tests(SHAPE), rel=1e-3)
    slots = 500_000 / (SHAPE.busy_hours * 3600) * (SHAPE.settle_seconds + SHAPE.job_seconds)
    assert wake_seconds(many, SHAPE) == pytest.approx(busy * slots / SHAPE.job_concurrency)


def test_with_few_messages_each_has_its_own_time() -> None:
    few = Load(10, SMALL)
    assert wake_seconds(few, SHAPE) == pytest.approx(10 * DAYS * (SHAPE.settle_seconds + SHAPE.job_seconds), rel=1e-2)
    assert webhook_seconds(few, SHAPE) - web_tests(SHAPE) == pytest.approx(10 * DAYS * SHAPE.requests, rel=1e-2)


def test_the_alerts_are_those_of_the_templates() -> None:
    templates = (DOCUMENT.parents[1] / "infra" / "modules" / "alerts.bicep").read_text("utf-8")
    assert SHAPE.log_alerts == templates.count("    display: '")
    assert SHAPE.metric_alerts == templates.count("Microsoft.Insights/metricAlerts@")
    assert SHAPE.web_test_places == templates.count("Id: 'emea-")
    assert f"Frequency: {SHAPE.web_test_seconds:.0f}" in templates
    assert web_tests(SHAPE) == pytest.approx(13_140)


def test_the_model_and_the_sizes_are_those_of_the_templates() -> None:
    """Prices follow the defaults of infra/: who changes a model there changes its price here."""
    templates = (DOCUMENT.parents[1] / "infra" / "main.bicep").read_text("utf-8")
    for default in (
        "chatModel string = 'gpt-5.6-luna'",
        "chatSku string = 'DataZoneStandard'",
        "embeddingModel string = 'text-embedding-3-small'",
        f"databaseSku string = 'Standard_{SMALL.name}'",
        f"databaseStorageGb int = {SMALL.gigabytes}",
        f"instanceMemoryMb int = {SHAPE.instance_megabytes}",
    ):
        assert f"param {default}" in templates


def test_an_answer_pays_for_its_tokens_and_for_two_messages() -> None:
    costs = monthly(Load(1_000, SMALL), SHAPE, PRICES)
    answers = 1_000 * DAYS
    assert costs["Model: answers"] == pytest.approx(answers * (3_000 * 1.10 + 200 * 6.60) / 1e6)
    assert costs["Twilio and WhatsApp"] == pytest.approx(answers * 0.01)


def test_a_standby_costs_the_same_again() -> None:
    server = LOADS[-1].server
    alone, two = (monthly(Load(1, replace(server, standby=on)), SHAPE, PRICES) for on in (False, True))
    assert two["Postgres: two servers and storage"] == 2 * alone["Postgres: server and storage"]


def test_more_messages_never_cost_less() -> None:
    before = -math.inf
    for messages in (0, 1, 100, 1_000, 20_000, 500_000):
        cost = sum(monthly(Load(messages, SMALL), SHAPE, PRICES).values())
        assert cost > before
        before = cost


def test_the_servers_have_the_connections_that_the_busiest_minutes_ask_for() -> None:
    for load in LOADS:
        asked = need(load, SHAPE)
        assert asked.connections == asked.instances * 5
        assert asked.connections <= load.server.connections


def test_the_busiest_minutes_by_hand() -> None:
    asked = need(Load(36_000, SMALL), SHAPE)  # one a second in ten hours, two in the busiest minutes
    assert asked.messages == pytest.approx(2.0)
    assert asked.tokens_a_minute == pytest.approx(2 * 60 * 3_200)
    assert asked.instances == 3  # eight of one instance's eight slots
    assert asked.sender == pytest.approx(4 / 80)
    assert answers_a_second(asked.tokens_a_minute, SHAPE) == pytest.approx(2.0)


def test_other_prices_can_be_put_in() -> None:
    shape, prices = read_values({"whatsapp_message": 0.1, "poll_seconds": 60})
    assert monthly(Load(1_000, SMALL), shape, prices)["Twilio and WhatsApp"] == pytest.approx(1_000 * DAYS * 0.2)
    assert monthly(IDLE, shape, prices)["Functions: the timer"] == 0.0
    with pytest.raises(ValueError, match="there is no size or price watsapp"):
        read_values({"watsapp": 1.0})


def test_every_row_of_the_table_has_a_cell_for_each_load() -> None:
    assert {line.count("|") for line in cost_table(SHAPE, PRICES)} == {len(LOADS) + 2}


def test_a_document_without_a_place_for_a_table_is_said() -> None:
    with pytest.raises(ValueError, match="there is no place for the table 'cost'"):
        filled("# Cost", {"cost": ["| a |"]})
