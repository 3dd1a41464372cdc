"""What a month costs, and which part is full first: arithmetic alone, with the prices and sizes as values that can be changed.

`python -m bench.cost` writes the tables of docs/cost.md; `--prices FILE` prints them with other prices or sizes (a JSON object
with names of `Prices` and `Shape`) and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from shared.db.budget import HEARTBEATS

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "cost.md"
DAYS = 365 / 12  # of a month
DAY_SECONDS = 86_400.0
MEGABYTES_OF_A_GIGABYTE = 1024
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """List prices in US dollars; docs/cost.md says where each comes from."""

    functions_gigabyte_second: float = 0.000026
    functions_free_gigabyte_seconds: float = 100_000.0
    functions_million_executions: float = 0.40
    functions_free_executions: float = 250_000.0
    model_million_tokens_in: float = 1.10
    model_million_tokens_out: float = 6.60
    embedding_million_tokens: float = 0.022
    database_gigabyte_month: float = 0.115
    logs_gigabyte: float = 2.30
    logs_free_gigabytes: float = 5.0
    log_alert_month: float = 1.50
    metric_alert_month: float = 0.10
    web_test: float = 0.0005
    queue_ten_thousand_operations: float = 0.004
    blob_ten_thousand_operations: float = 0.05
    key_vault_ten_thousand_operations: float = 0.03
    whatsapp_message: float = 0.005


@dataclass(frozen=True, slots=True)
class Shape:
    """How the system is set up, and what one message takes of it. Times are in seconds, sizes in tokens, bytes or megabytes."""

    poll_seconds: float = 5.0  # POLL_SCHEDULE
    instance_megabytes: int = 2048
    billed_at_least_seconds: float = 1.0  # for each time that an instance is at work
    job_concurrency: int = 8
    pool: int = 4
    busy_hours: float = 10.0  # all of a day's messages come in these, evenly
    peak: float = 2.0  # the busiest minutes have so many times as many
    tokens_in: float = 3_000.0
    tokens_out: float = 200.0  # what is said; a model that reasons first writes many times as many
    tokens_embedded: float = 40.0
    settle_seconds: float = 1.5
    job_seconds: float = 2.5  # a slot's time for one answer: embed, search, model, send
    requests: float = 4.0  # the message, and three status callbacks
    replies: float = 1.0
    whatsapp_a_second: float = 80.0  # in and out together, one sender
    logged_bytes: float = 8_000.0
    logged_bytes_a_poll: float = 1_500.0
    kept_bytes: float = 5_000.0  # in the database, for good and with its indexes
    log_alerts: float = 7.0  # infra/modules/alerts.bicep, looked at every five minutes
    metric_alerts: float = 3.0
    web_test_places: float = 3.0
    web_test_seconds: float = 600.0  # between two from one place
    wake_operations: float = 5.0  # put, get, delete, and looks that find nothing
    look_seconds: float = 2.0  # between two looks of an idle queue listener

    @property
    def tokens(self) -> float:
        """What one answer counts against the model's limit."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class Server:
    """A size of the database server: dollars a month (twice that with a standby) and the connections for users."""

    name: str
    month: float
    connections: int
    gigabytes: int
    standby: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """So many messages a day, and the server that is enough for them."""

    messages: float
    server: Server

    @property
    def name(self) -> str:
        """As a column's head."""
        return f"{self.messages:,.0f} a day" if self.messages else "idle"


SMALL = Server("B1ms", 12.41, 35, 32)
LOADS = (
    Load(0, SMALL),
    Load(1_000, SMALL),
    Load(20_000, Server("B2s", 49.64, 414, 64)),
    Load(500_000, Server("D4ds_v5", 259.88, 1_703, 1024, standby=True)),
)
SCHEDULES = {"*/5 * * * * *": 5.0, "*/15 * * * * *": 15.0, "*/30 * * * * *": 30.0, "0 * * * * *": 60.0}
MEMORIES = (512, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Need:
    """What the busiest minutes ask for: messages a second, model tokens a minute, instances, connections, share of a sender."""

    messages: float
    tokens_a_minute: float
    instances: int
    connections: int
    sender: float


def timer_seconds(load: Load, shape: Shape) -> float:
    """Seconds of a month that the timer's instance is at work.

    An idle run is over at once and is billed its least. While messages come in a run goes on as long as something is due, or
    falls due soon: with random arrivals that is 1 - exp(-rate x time), and not less than when idle.
    """
    idle = min(shape.billed_at_least_seconds / shape.poll_seconds, 1.0)
    busy = max(idle, 1 - math.exp(-_rate(load, shape) * (shape.settle_seconds + shape.job_seconds)))
    hours = shape.busy_hours if load.messages else 0.0
    return DAYS * 3600 * (hours * busy + (24 - hours) * idle)


def webhook_seconds(load: Load, shape: Shape) -> float:
    """Seconds of a month that an instance answers requests; those that overlap count once. The health's tests come always."""
    requests = _rate(load, shape) * shape.requests
    busy = DAYS * 3600 * shape.busy_hours * (1 - math.exp(-requests * shape.billed_at_least_seconds))
    return busy + web_tests(shape) * shape.billed_at_least_seconds


def web_tests(shape: Shape) -> float:
    """How often a month the health is asked for from outside."""
    return DAYS * DAY_SECONDS / shape.web_test_seconds * shape.web_test_places


def wake_seconds(load: Load, shape: Shape) -> float:
    """Seconds of a month of all instances that run jobs: each has its slots, and with few messages they are mostly alone."""
    slots = _rate(load, shape) * (shape.settle_seconds + shape.job_seconds)
    return DAYS * 3600 * shape.busy_hours * max(1 - math.exp(-slots), slots / shape.job_concurrency)


def functions(seconds: float, executions: float, shape: Shape, prices: Prices, free_share: float = 1.0) -> float:
    """Dollars for instance seconds and executions on demand; `free_share` of the month's free grant is theirs."""
    used = seconds * shape.instance_megabytes / MEGABYTES_OF_A_GIGABYTE
    paid = max(used - free_share * prices.functions_free_gigabyte_seconds, 0.0)
    counted = max(executions - free_share * prices.functions_free_executions, 0.0)
    return paid * prices.functions_gigabyte_second + counted / MILLION * prices.functions_million_executions


def monthly(load: Load, shape: Shape, prices: Prices) -> dict[str, float]:
    """Dollars a month by part. The free grant of Functions goes to the timer first, which alone uses it up."""
    month = load.messages * DAYS
    polls = DAYS * DAY_SECONDS / shape.poll_seconds
    answers = month * shape.replies
    replicas = 2 if load.server.standby else 1
    logged = (month * shape.logged_bytes + polls * shape.logged_bytes_a_poll) / 1e9
    looks = DAYS * DAY_SECONDS / shape.look_seconds
    return {
        "Functions: the timer": functions(timer_seconds(load, shape), polls, shape, prices),
        "Functions: webhooks and jobs": functions(
            webhook_seconds(load, shape) + wake_seconds(load, shape),
            month * (shape.requests + 1) + web_tests(shape), shape, prices, free_share=0.0,
        ),
        f"Postgres: {'server' if replicas == 1 else 'two servers'} and storage": replicas
        * (load.server.month + load.server.gigabytes * prices.database_gigabyte_month),
        "Model: answers": answers
        * (shape.tokens_in * prices.model_million_tokens_in + shape.tokens_out * prices.model_million_tokens_out)
        / MILLION,
        "Model: embeddings": month * shape.tokens_embedded / MILLION * prices.embedding_million_tokens,
        "Twilio and WhatsApp": (month + answers) * prices.whatsapp_message,
        "Logs": max(logged - prices.logs_free_gigabytes, 0.0) * prices.logs_gigabyte,
        "Alerts and health tests": shape.log_alerts * prices.log_alert_month
        + shape.metric_alerts * prices.metric_alert_month
        + web_tests(shape) * prices.web_test,
        "Storage queue and locks": (month * shape.wake_operations + looks) / 10_000 * prices.queue_ten_thousand_operations
        + polls / 10_000 * prices.blob_ten_thousand_operations,
        "Key Vault": prices.key_vault_ten_thousand_operations,
    }  # fmt: skip


def need(load: Load, shape: Shape) -> Need:
    """What the busiest minutes ask for. Three groups scale apart: the timer (one), webhooks, and wake messages."""
    rate = _rate(load, shape) * shape.peak
    slots = rate * (shape.settle_seconds + shape.job_seconds)
    instances = 2 + max(math.ceil(slots / shape.job_concurrency), 1)
    return Need(
        rate,
        rate * 60 * shape.replies * shape.tokens,
        instances,
        instances * (shape.pool + HEARTBEATS),
        rate * (1 + shape.replies) / shape.whatsapp_a_second,
    )


def answers_a_second(tokens_a_minute: float, shape: Shape) -> float:
    """What a model deployment's limit lets through."""
    return tokens_a_minute / 60 / shape.tokens


def cost_table(shape: Shape, prices: Prices, loads: Sequence[Load] = LOADS) -> list[str]:
    """Dollars a month: a row a part, a column a load."""
    columns = [monthly(load, shape, prices) for load in loads]
    names = ["Postgres: server and storage" if name.startswith("Postgres") else name for name in columns[0]]
    rows = [
        _row(name, *(_dollars(cost) for cost in costs))
        for name, *costs in zip(names, *(column.values() for column in columns), strict=True)
    ]
    outside = ("Model: answers", "Model: embeddings", "Twilio and WhatsApp")
    return [
        *_head("dollars a month", *(load.name for load in loads)),
        *rows,
        _row("**all**", *(f"**{_dollars(sum(column.values()))}**" for column in columns)),
        _row("without model and Twilio", *(
            _dollars(sum(cost for name, cost in column.items() if name not in outside)) for column in columns)),
        _row("an answer, all in, in cents", *(
            f"{100 * sum(column.values()) / (load.messages * DAYS):.2f}" if load.messages else "–"
            for load, column in zip(loads, columns, strict=True))),
        _row("server", *(f"{load.server.name}{', standby' if load.server.standby else ''}, {load.server.gigabytes} GiB"
                         for load in loads)),
    ]  # fmt: skip


def timer_table(shape: Shape, prices: Prices) -> list[str]:
    """Dollars a month of the idle timer: a row a schedule, a column an instance's memory."""
    return [
        *_head("`POLL_SCHEDULE`", *(f"{memory:,} MB" for memory in MEMORIES)),
        *(
            _row(f"`{schedule}`", *(
                _dollars(monthly(LOADS[0], replace(shape, poll_seconds=seconds, instance_megabytes=memory), prices)
                         ["Functions: the timer"])
                for memory in MEMORIES))
            for schedule, seconds in SCHEDULES.items()
        ),
    ]  # fmt: skip


def need_table(shape: Shape, loads: Sequence[Load] = LOADS) -> list[str]:
    """What the busiest minutes of each load ask for."""
    needs = [(load, need(load, shape)) for load in loads if load.messages]
    return [
        *_head("in the busiest minutes", *(load.name for load, _ in needs)),
        _row("messages a second", *(_three(asked.messages) for _, asked in needs)),
        _row("model tokens a minute", *(f"{round(asked.tokens_a_minute, -3):,.0f}" for _, asked in needs)),
        _row("instances (timer, webhooks, jobs)", *(str(asked.instances) for _, asked in needs)),
        _row("connections, of those the server gives", *(
            f"{asked.connections} of {load.server.connections:,}" for load, asked in needs)),
        _row("share of one WhatsApp sender", *(f"{_three(100 * asked.sender)} %" for _, asked in needs)),
        _row("database grows a month, GB", *(
            _three(load.messages * DAYS * shape.kept_bytes / 1e9) for load, _ in needs)),
    ]  # fmt: skip


def tables(shape: Shape, prices: Prices) -> dict[str, list[str]]:
    """The tables of the document by their markers' names."""
    return {"cost": cost_table(shape, prices), "timer": timer_table(shape, prices), "need": need_table(shape)}


def filled(text: str, made: Mapping[str, Sequence[str]]) -> str:
    """The document with its tables put between their markers. Raises ValueError when a marker is missing."""
    for name, lines in made.items():
        begin, end = f"<!-- {name}: written by python -m bench.cost -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"there is no place for the table {name!r}: put {begin} and {end} there")
        text = before + "\n".join([begin, *lines, end]) + after
    return text


def read_values(given: Mapping[str, float]) -> tuple[Shape, Prices]:
    """The sizes and prices with some changed. Raises ValueError for a name that neither has."""
    known = {kind: {item.name for item in fields(kind)} for kind in (Shape, Prices)}
    if unknown := set(given) - known[Shape] - known[Prices]:
        raise ValueError(f"there is no size or price {', '.join(sorted(unknown))}")
    shape, prices = ({name: given[name] for name in given.keys() & known[kind]} for kind in (Shape, Prices))
    return replace(Shape(), **shape), replace(Prices(), **prices)  # type: ignore[arg-type]


def _rate(load: Load, shape: Shape) -> float:
    """Messages a second in the busy hours."""
    return load.messages / (shape.busy_hours * 3600)


def _dollars(cost: float) -> str:
    return f"{cost:,.2f}" if cost < 100 else f"{cost:,.0f}"


def _three(value: float) -> str:
    """Three figures that count."""
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|---" + "|---:" * (len(cells) - 1) + "|"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the document's tables, or print them with other prices."""
    parser = argparse.ArgumentParser(description="What a month costs.")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="a JSON object with other prices or sizes")
    given = parser.parse_args().prices
    if given is None:
        DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8"), tables(Shape(), Prices())), "utf-8")
        return
    for lines in tables(*read_values(json.loads(given.read_text("utf-8")))).values():
        print(*lines, "", sep="\n")


if __name__ == "__main__":
    main()
