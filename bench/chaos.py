"""Chaos: thousands of messages while hosts are killed, the database restarts and every service fails; then all is counted.

Two real hosts share one database behind one address. What is said, which webhook is lost, doubled or late, and when whom a fault
strikes come from a seed; threads and processes do not, so the same seed gives the same weather, not the same run. A violation is
a bug of the application: each is printed with its ids.
"""

from __future__ import annotations

import argparse
import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.chaos_script import Said, write
from bench.chaos_site import Site
from bench.chaos_verdict import Record, Verdict
from bench.figures import Figure, Goal, Spread
from bench.lab import BenchFailed, Lab, wait_until
from bench.report import alone
from local.postgres import EmbeddedPostgres
from shared.conversation import settle
from shared.errors import UserError
from shared.queue import replay

MESSAGES, CONVERSATIONS, RATE = 10_000, 500, 12.0  # messages a second
POSTERS = 12
FREEZES = 0.2  # the share of the hosts' accidents that they survive
LISTED_EARLIER = (
    150.0  # seconds that a lost message is older than it was: the sweep leaves the youngest to their webhooks
)
HURRY_STEP, HURRY_EVERY = 2.0, 0.5  # seconds of the rows' and the list's time that pass in so many real ones
QUIET_SECONDS_AT_MOST = 600.0

SWEEP_IS_DUE = "UPDATE chores SET ran_at = ran_at - interval '1 hour' WHERE name = 'sweep'"
LEFT = """
    SELECT (SELECT count(*)::int FROM ai_jobs
            WHERE type IN ('autoreply', 'send_message') AND status IN ('pending', 'processing')),
        (SELECT count(*)::int FROM messages WHERE NOT from_self)
"""
LET_TIME_PASS = """
    UPDATE messages SET send_started_at = send_started_at - make_interval(secs => %(age)s),
        in_doubt_since = in_doubt_since - make_interval(secs => %(age)s),
        last_lookup_at = last_lookup_at - make_interval(secs => %(age)s),
        lookups_failing_since = lookups_failing_since - make_interval(secs => %(age)s)
    WHERE from_self AND send_started_at IS NOT NULL AND provider_sid IS NULL
"""
SOONER = "UPDATE ai_jobs SET next_run_at = next_run_at - make_interval(secs => %(age)s) WHERE status = 'pending'"
REST_LESS = "UPDATE job_types SET resting_until = resting_until - make_interval(secs => %(age)s) WHERE resting_until IS NOT NULL"
IN_DOUBT = "SELECT id FROM messages WHERE from_self AND status = 'held' AND send_started_at IS NOT NULL AND provider_sid IS NULL"

LOOKED_IN_VAIN = "SELECT FROM message_events WHERE what = 'lookup_empty' LIMIT 1"
DEAD = "SELECT id FROM dead_letters ORDER BY seq"


@dataclass(frozen=True, slots=True)
class Chaos:
    """The knobs. `seconds` is how long messages come in; `hurry` lets time pass faster for what waits."""

    messages: int = MESSAGES
    conversations: int = CONVERSATIONS
    seed: int = 1
    seconds: float = MESSAGES / RATE
    hurry: bool = False
    settles: bool = False  # at the end a person restarts what is held or dead (which looks first)
    kill_every: tuple[float, float] = (3.0, 8.0)
    restart_every: float = 60.0
    harshness: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: `counts` of everything, `violations` in words, and how long it took."""

    counts: Counter[str]
    violations: list[str]
    seconds: float
    until_quiet: float


def run(chaos: Chaos, postgres: EmbeddedPostgres, folder: Path, note: Callable[[str], None]) -> Outcome:
    """One run on a cluster that nobody else uses: its database is restarted."""
    script = write(chaos.messages, chaos.conversations, chaos.seconds, chaos.seed)
    with Site(postgres, f"chaos_{chaos.seed}", folder, chaos.seed, chaos.harshness) as site:
        return _Run(chaos, site, script, note).go()


@dataclass
class _Run:
    chaos: Chaos
    site: Site
    script: list[Said]
    note: Callable[[str], None]
    said: dict[str, Said] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def go(self) -> Outcome:
        began = time.monotonic()
        beside = [threading.Thread(target=work, daemon=True) for work in (self._weather, self._breaking, self._passing)]
        for thread in beside:
            thread.start()
        try:
            self._say_all()
            said_after = time.monotonic() - began
            self.note(f"chaos: all is said after {said_after:.0f} s, with {dict(self.site.deeds)} …")
            wait_until(self._has_blown, "the storm to do its part", QUIET_SECONDS_AT_MOST)
            self.site.weather.calm = True
            beside[0].join()
            beside[1].join()
            self._until_quiet()
            first = self._judge()
            if self.chaos.settles and not first.violations:
                first = self._settle(first)
        finally:
            self.ended.set()
            self.site.stopping.set()
            for thread in beside:
                thread.join(30)
        taken = time.monotonic() - began
        return Outcome(first.counts + self.site.deeds + self._weathers(), first.violations, taken, taken - said_after)

    def _weathers(self) -> Counter[str]:
        return Counter({f"fault at {name}": count for name, count in self.site.weather.struck.items()})

    def _say_all(self) -> None:
        """Say everything in its time, and post its webhooks in theirs."""
        began, turns = time.monotonic(), 0
        due: list[tuple[float, int, str]] = []

        def wait_for(at: float) -> None:
            time.sleep(max(began + at - time.monotonic(), 0.0))

        with ThreadPoolExecutor(POSTERS, "webhooks") as posters:

            def post(until: float) -> None:
                while due and due[0][0] <= until:
                    at, _, sid = heapq.heappop(due)
                    wait_for(at)
                    posters.submit(self.site.twilio.redeliver, sid)

            for said in self.script:
                post(said.at)
                wait_for(said.at)
                sid = self.site.twilio.receive(said.address, said.text)
                self.said[sid] = said
                self._count_webhooks(said, sid)
                for at in said.webhooks:
                    turns += 1
                    heapq.heappush(due, (at, turns, sid))
                if len(self.said) % 1000 == 0:
                    self.note(f"chaos: {len(self.said):,} messages …")
            post(float("inf"))

    def _count_webhooks(self, said: Said, sid: str) -> None:
        if not said.webhooks:
            self.site.deeds["webhooks lost"] += 1
            found = self.site.twilio.messages.find(sid)
            assert found is not None, "it has just come in"
            self.site.twilio.messages.change(sid, created=found.created - LISTED_EARLIER)
        elif len(said.webhooks) > 1:
            self.site.deeds["webhooks doubled"] += 1
        elif said.webhooks[0] > said.at:
            self.site.deeds["webhooks late"] += 1

    def _weather(self) -> None:
        self.site.blow(sorted({said.address for said in self.script}), random.Random(self.chaos.seed + 1))

    def _breaking(self) -> None:
        """Kill and freeze hosts and restart the database until the weather is calm; the hosts are up again then.

        By then a host was killed and the database restarted, also where a machine is so slow that one of them takes all the time.
        """
        draw, began = random.Random(self.chaos.seed + 2), time.monotonic()
        while not self.site.stopping.wait(draw.uniform(*self.chaos.kill_every)):
            kills, restarts = self.site.deeds["hosts killed"], self.site.deeds["database restarts"]
            is_calm = self.site.weather.calm
            if is_calm and kills and restarts:
                return
            is_due = time.monotonic() - began > (restarts + 0.5) * self.chaos.restart_every
            if is_due or (is_calm and kills):
                self.site.restart_database()
            elif not is_calm and draw.random() < FREEZES:
                self.site.freeze_one(draw)
            else:
                self.site.kill_one(draw)

    def _has_blown(self) -> bool:
        """Whether a send was lost and looked for in vain, which hosts that stand still do not come to in time; or all is over."""
        has_looked, (active, _) = self.site.ask_database(_has_looked), self.site.ask_database(_left)
        return has_looked or active == 0

    def _passing(self) -> None:
        """Let the sweep come round; and, in a hurry, let time pass for what waits."""
        rounds = 0
        while not self.ended.wait(HURRY_EVERY):
            rounds += 1
            try:
                self.site.ask_database(lambda connection: self._pass(connection, rounds))  # noqa: B023 - asked at once
            except psycopg.Error:
                continue  # the database is being restarted

    def _pass(self, connection: psycopg.Connection, rounds: int) -> None:
        if rounds % 8 == 0:
            connection.execute(SWEEP_IS_DUE)
        if self.chaos.hurry:
            age = {"age": HURRY_STEP}
            with connection.transaction():
                for statement in (LET_TIME_PASS, SOONER, REST_LESS):
                    connection.execute(statement, age)
            self.site.twilio.messages.age(HURRY_STEP)

    def _until_quiet(self) -> None:
        """Until nothing waits, all that was said is there, and no callback is on its way."""
        posted = -1

        def is_quiet() -> bool:
            nonlocal posted
            active, came_in = self.site.ask_database(_left)
            before, posted = posted, len(self.site.twilio.posted)
            if active == 0 and came_in == len(self.said) and posted == before:
                return True
            time.sleep(1.5)  # longer than a message's states take
            return False

        try:
            wait_until(is_quiet, "the queue to be quiet", QUIET_SECONDS_AT_MOST)
        except BenchFailed as failed:
            self.note(f"chaos: {failed} {self.site.ask_database(_left)} of {len(self.said)}")

    def _judge(self, *, restarted: bool = False) -> Verdict:
        record = Record(self.said, self.site.twilio.sent, self.site.twilio.posted, list(self.site.model.paid))
        self.site.ask_database(record.read)
        return Verdict(record, restarted).judge()

    def _settle(self, before: Verdict) -> Verdict:
        """A person has everything sent again that is held, and the other dead letters restarted."""
        self.note(f"chaos: {before.counts['replies held']} held messages are sent again …")

        def send_again(connection: psycopg.Connection) -> None:
            for (message_id,) in connection.execute(IN_DOUBT).fetchall():
                try:
                    settle.send_again(connection, message_id, who="bench")
                    self.site.deeds["held, sent again by a person"] += 1
                except UserError:
                    self.site.deeds["held, could not be sent again"] += 1
            dead = [job_id for (job_id,) in connection.execute(DEAD).fetchall()]
            for became in replay.restart(connection, dead, who="bench").values():
                self.site.deeds[f"dead letters {became} by a person"] += 1

        self.site.ask_database(send_again)
        self._until_quiet()
        return self._judge(restarted=True)


def _has_looked(connection: psycopg.Connection) -> bool:
    return connection.execute(LOOKED_IN_VAIN).fetchone() is not None


def _left(connection: psycopg.Connection) -> tuple[int, int]:
    row = connection.execute(LEFT).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The whole: 10,000 messages over 500 conversations; about twenty minutes."""
    return chaos_figures(Chaos(), note)


def chaos_figures(chaos: Chaos, note: Callable[[str], None]) -> list[Figure]:
    """One run's counts."""
    note(f"chaos: {chaos.messages:,} messages over {chaos.conversations} conversations, seed {chaos.seed} …")
    with Lab() as lab:
        outcome = run(chaos, lab.postgres, lab.folder, note)
    for violation in outcome.violations:
        note(f"VIOLATION {violation}")
    rate = chaos.messages / outcome.seconds
    return [
        _figure("violations", len(outcome.violations), "", Goal(0.0)),
        _figure("messages to the end of everything", rate, "/s"),
        _figure("from the last message to quiet", outcome.until_quiet, "s"),
        *(_figure(what, count, "") for what, count in sorted(outcome.counts.items())),
    ]


def _figure(what: str, value: float, unit: str, goal: Goal | None = None) -> Figure:
    return Figure("chaos", what, Spread(value, value, value), unit, goal=goal)


def main() -> None:
    """Measure and print; the knobs make it shorter."""
    parser = argparse.ArgumentParser(description="Messages in bad weather.")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--conversations", type=int, help="a twentieth of the messages by default")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--seconds", type=float, help="how long they come in; by default 12 a second")
    parser.add_argument(
        "--restart-every", type=float, default=60.0, help="seconds between two restarts of the database"
    )
    parser.add_argument("--kill-every", type=float, default=5.5, help="seconds between two kills, about")
    parser.add_argument("--harshness", type=float, default=1.0, help="so many times the usual share of faults")
    parser.add_argument("--hurry", action="store_true", help="let time pass faster for what waits")
    parser.add_argument("--settle", action="store_true", help="restart what is held or dead at the end")
    given = parser.parse_args()
    chaos = Chaos(
        given.messages, given.conversations or max(given.messages // 20, 1), given.seed,
        given.seconds or given.messages / RATE, given.hurry, given.settle,
        kill_every=(given.kill_every * 0.5, given.kill_every * 1.5), restart_every=given.restart_every, harshness=given.harshness,
    )  # fmt: skip
    alone(lambda note: chaos_figures(chaos, note))


if __name__ == "__main__":
    main()
