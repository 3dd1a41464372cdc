"""From a message to its answer being accepted by the Twilio stand-in: a model of 1.5 s, default settings, timer and wake on.

The hosts differ in how wake messages reach them: from a queue in the host's own process, which rings; or from one in another
process, which has to be polled, as Azure's listener polls it; and the latter without the head start of wake messages. Single
messages come when the listener's polling has slowed down to its two seconds; all hosts are measured side by side then, since they
mostly wait. Bursts are measured one host at a time.
"""

from __future__ import annotations

import csv
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from bench.figures import Figure, Goal, Spread
from bench.lab import Lab, is_idle, wait_until
from bench.report import alone
from local.demo.load import FOLDER as DEMO
from local.demo.load import load_demo, waiting
from local.standins.azure_openai import OpenAIStandIn
from local.standins.encoder import ENCODER
from local.standins.storage_queue import QueueStandIn
from local.standins.twilio import TwilioStandIn
from local.standins.twilio_messages import Message
from shared.db.pool import Conn

MODEL_SECONDS = 1.5
ROUNDS = 3
SINGLES = 3  # in a round
IDLE_SECONDS = (3.3, 5.2)  # between an answer and the next message; the timer's phase is anything
BURST, BURST_SECONDS, BURSTS = 30, 5.0, 2
SECONDS_AT_MOST = 60.0


class OneAnswer:
    """A model that thinks for 1.5 s and no longer: the stand-in's own answerer takes more the first time that it is asked."""

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The same to everybody, cited."""
        del messages
        return "Dat staat zo in het handboek. [1]"


@dataclass(slots=True)
class Line:
    """One host with its own database, Twilio and queue; `changes` are its settings."""

    what: str
    arguments: tuple[str, ...] = ()
    changes: dict[str, str] = field(default_factory=dict)
    storage: QueueStandIn | None = None
    is_ours: bool = True  # or only there to show what a part of ours brings: without bursts, without goals
    twilio: TwilioStandIn = field(default_factory=TwilioStandIn)
    connection: Conn | None = None
    singles: list[list[float]] = field(default_factory=list)
    bursts: list[list[float]] = field(default_factory=list)


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about two minutes."""
    lines = [
        Line("queue in the host's process", ("--queue-standin",)),
        Line("queue polled", storage=QueueStandIn()),
        Line("the same, no head start", changes={"BENCH_HEAD_START": "off"}, storage=QueueStandIn(), is_ours=False),
    ]
    with Lab() as lab, OpenAIStandIn(answerer=OneAnswer()) as model:
        note("answered: starting, and embedding the demo's handbooks …")
        _start(lab, model, lines)
        model.model_seconds = MODEL_SECONDS
        questions = _questions()
        ENCODER.encode(questions)  # kept by the encoder: from now on an embedding takes no time
        note(f"answered: {ROUNDS * SINGLES} single messages to each of {len(lines)} hosts …")
        with ThreadPoolExecutor(len(lines)) as pool:
            list(pool.map(lambda line: _singles(line, questions), lines))
        for number in range(BURSTS):
            note(f"answered: burst {number + 1} of {BURSTS}, {BURST} conversations in {BURST_SECONDS:g} s …")
            for line in lines:
                if line.is_ours:
                    line.bursts.append(_burst(line, questions))
    return [figure for line in lines for figure in _figures(line)]


def _start(lab: Lab, model: OpenAIStandIn, lines: list[Line]) -> None:
    template = lab.database("handbook")
    with lab.connect(template) as connection:
        load_demo(connection)
        host = lab.host(
            template, "--no-wake", changes={"AZURE_OPENAI_ENDPOINT": model.url, "POLL_SCHEDULE": "* * * * * *"}
        )
        wait_until(lambda: waiting(connection) == 0 and is_idle(connection), "the handbooks to be embedded", 120.0)
        host.stop()
    for number, line in enumerate(lines):
        url = lab.database(f"line_{number}", template="handbook")
        line.connection = lab.connect(url)
        lab.enter(line.twilio)
        changes = {
            "UNKNOWN_SENDERS": "answer",
            "AZURE_OPENAI_ENDPOINT": model.url,
            "TWILIO_API_BASE_URL": line.twilio.url,
        }
        if line.storage:
            changes["AzureWebJobsStorage"] = lab.enter(line.storage).connection_string
        host = lab.host(url, *line.arguments, app=lab.variant(), changes=changes | line.changes)
        line.twilio.webhook_url = f"{host.url}/api/twilio/inbound"


def _questions() -> list[str]:
    with (DEMO / "questions.csv").open(encoding="utf-8", newline="") as lines:
        return [row["question"] for row in csv.DictReader(lines)]


def _singles(line: Line, questions: list[str]) -> None:
    draw = random.Random(line.what)
    _ask(line, [questions[0]], 0.0, 0)  # warm-up: clients are made, the prompt's files are read
    for number in range(ROUNDS):
        took = []
        for turn in range(SINGLES):
            time.sleep(draw.uniform(*IDLE_SECONDS))
            index = 1 + number * SINGLES + turn
            took += _ask(line, [questions[index % len(questions)]], 0.0, index)
        line.singles.append(took)


def _burst(line: Line, questions: list[str]) -> list[float]:
    texts = [questions[index % len(questions)] for index in range(BURST)]
    return _ask(line, texts, BURST_SECONDS / BURST, 1000 * (len(line.bursts) + 1))


def _ask(line: Line, texts: list[str], gap: float, first: int) -> list[float]:
    """Each text from a number of its own, `gap` seconds apart: the seconds until each answer was accepted."""
    numbers = [f"whatsapp:+{31_600_000_000 + first + index}" for index in range(len(texts))]
    accepted: dict[str, float] = {}
    complete = threading.Event()

    def hear(what: str, message: Message) -> None:
        if what == "created" and message.direction != "inbound" and message.to in numbers:
            accepted.setdefault(message.to, message.created)
            if len(accepted) == len(numbers):
                complete.set()

    line.twilio.messages.listeners.append(hear)
    asked, begins = {}, time.monotonic()
    for index, (number, text) in enumerate(zip(numbers, texts, strict=True)):
        time.sleep(max(begins + index * gap - time.monotonic(), 0.0))
        asked[number] = time.time()
        line.twilio.receive(number, text, wait=False)
    wait_until(complete.is_set, f"{len(texts)} answers ({line.what})", SECONDS_AT_MOST)
    line.twilio.messages.listeners.remove(hear)
    connection = line.connection
    assert connection is not None
    wait_until(lambda: is_idle(connection), "the jobs to be done")
    return [accepted[number] - asked[number] for number in numbers]


def _figures(line: Line) -> list[Figure]:
    kinds = [("single", line.singles), (f"burst of {BURST}", line.bursts)]
    return [
        Figure(
            "answered",
            f"p{share * 100:.0f}, {kind}, {line.what}",
            Spread.pooled(rounds, share),
            "s",
            goal=Goal(limit) if line.is_ours else None,
        )
        for kind, rounds in kinds
        if rounds
        for share, limit in ((0.5, 4.0), (0.95, 7.0))
    ]


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
