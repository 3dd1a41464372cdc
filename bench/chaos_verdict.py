"""What must be true after a chaos run, judged from the record of Twilio's stand-in and from the database."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from bench.chaos_script import SAME, Said, numbers_in
from local.standins.twilio_callbacks import Posted
from local.standins.twilio_messages import Message

CAME_IN = """
    SELECT m.provider_sid AS sid, m.id, m.conversation_id, m.seq, m.answered_by, m.prompted_by, m.created_at,
        m.body <> '' AS has_text
    FROM messages m WHERE NOT m.from_self ORDER BY m.seq
"""
WENT_OUT = """
    SELECT m.id, m.conversation_id, m.reply_id, m.seq, m.part, m.parts, m.body, m.status, m.source, m.purpose, m.held_reason,
        m.provider_sid, m.second_sid, m.evidence, m.model,
        coalesce((SELECT array_agg(e.at ORDER BY e.id) FROM message_events e
            WHERE e.message_id = m.id AND e.what = 'intent'), '{}') AS intents
    FROM messages m WHERE m.from_self ORDER BY m.seq
"""
JOBS = """
    SELECT j.id, j.conversation_id, j.type, j.status, j.closed_reason, j.error_class, j.payload ->> 'message_id' AS message_id,
        (SELECT count(*)::int FROM job_attempts a WHERE a.job_id = j.id
            AND (a.outcome IN ('crashed', 'returned') OR a.error_class = 'database')) AS broken_off
    FROM ai_jobs j
"""
CONVERSATIONS = """
    SELECT id, address, needs_person_since IS NOT NULL AS is_flagged, opted_out_at IS NOT NULL AS is_opted_out
    FROM conversations
"""
EVENTS = "SELECT what, count(*)::int FROM message_events GROUP BY what"
_OURS = re.compile(r"[?&]message=([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True)
class CameIn:
    """An inbound message's row; the sweep finds no text where the account keeps none."""

    sid: str
    id: UUID
    conversation_id: UUID
    seq: int
    answered_by: UUID | None
    prompted_by: UUID | None
    created_at: datetime
    has_text: bool


@dataclass(frozen=True, slots=True)
class WentOut:
    """A row of ours; `intents`: when each request to Twilio was announced."""

    id: UUID
    conversation_id: UUID
    reply_id: UUID
    seq: int
    part: int
    parts: int
    body: str
    status: str
    source: str
    purpose: str
    held_reason: str | None
    provider_sid: str | None
    second_sid: str | None
    evidence: str | None
    model: str | None
    intents: list[datetime]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job; `broken_off` counts the attempts whose end its own code has not decided."""

    id: UUID
    conversation_id: UUID
    type: str
    status: str
    closed_reason: str | None
    error_class: str | None
    message_id: str | None
    broken_off: int


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation."""

    id: UUID
    address: str
    is_flagged: bool
    is_opted_out: bool


@dataclass
class Record:
    """All there is to judge by: `said` by the sid that Twilio gave it, `sent` in the order of acceptance."""

    said: dict[str, Said]
    sent: Sequence[Message]
    posted: Sequence[Posted]
    paid: Sequence[frozenset[int]]
    came_in: list[CameIn] = field(default_factory=list)
    went_out: list[WentOut] = field(default_factory=list)
    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    talks: dict[UUID, Talk] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)

    def read(self, connection: psycopg.Connection) -> None:
        """Read the rows."""
        self.came_in = connection.cursor(row_factory=class_row(CameIn)).execute(CAME_IN).fetchall()
        self.went_out = connection.cursor(row_factory=class_row(WentOut)).execute(WENT_OUT).fetchall()
        self.jobs = {job.id: job for job in connection.cursor(row_factory=class_row(JobRow)).execute(JOBS)}
        self.talks = {talk.id: talk for talk in connection.cursor(row_factory=class_row(Talk)).execute(CONVERSATIONS)}
        self.events = dict(connection.execute(EVENTS).fetchall())


@dataclass
class Verdict:
    """The counts, and every violation with its ids. `restarted`: a person has sent held messages again, late."""

    record: Record
    restarted: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def judge(self) -> Verdict:
        """Judge everything."""
        record = self.record
        self._rows = {message.id: message for message in record.went_out}
        self._parts: dict[UUID, list[WentOut]] = defaultdict(list)
        for message in record.went_out:
            self._parts[message.reply_id].append(message)
        self._accepted: dict[UUID, list[Message]] = defaultdict(list)
        for sent in record.sent:
            ours = _OURS.search(sent.status_callback or "")
            if ours is None or UUID(ours[1]) not in self._rows:
                self._violation("accepted, but on no row", sent.sid)
            else:
                self._accepted[UUID(ours[1])].append(sent)
        self._once()
        self._by_text()
        for came in record.came_in:
            self._covered(came)
        for sid in record.said.keys() - {came.sid for came in record.came_in}:
            self._violation("never taken in", f"nr{record.said[sid].number:06d}", sid)
        self._in_order()
        self._paid_once()
        self._consent()
        self.counts.update({f"event: {what}": count for what, count in record.events.items()})
        self.counts["said"] = len(record.said)
        self.counts["replies accepted"] = len(record.sent)
        self.counts["model answers"] = len(record.paid)
        return self

    def _violation(self, what: str, *ids: object) -> None:
        self.violations.append(f"{what}: {' '.join(str(each) for each in ids)}")

    def _once(self) -> None:
        """Each row at most once, with its own sid, and what the row says is true."""
        for message in self.record.went_out:
            accepted = self._accepted[message.id]
            sids = {sent.sid for sent in accepted}
            if len(accepted) > 1:
                self._violation("accepted twice", message.id, message.purpose, sorted(sids))
            if message.provider_sid is not None and message.provider_sid not in sids:
                self._violation("settled by another message's evidence", message.id, message.provider_sid, sorted(sids))
            if message.second_sid is not None:
                self._violation("a second sid", message.id, message.second_sid)
            is_accepted = message.provider_sid is not None
            if accepted and not is_accepted and message.status != "held":
                self._violation("accepted, but the row does not know", message.id, message.status, message.held_reason)
            if message.status in ("sent", "delivered", "read") and not accepted:
                self._violation("never accepted, but the row says so", message.id, message.status, message.evidence)
            if message.status == "held" and not self.record.talks[message.conversation_id].is_flagged:
                self._violation("held without a flag", message.id, message.held_reason)
            if message.status in ("draft", "sending"):
                self._violation("left behind", message.id, message.status, message.purpose)
            if accepted and accepted[0].body != message.body:
                self._violation("accepted with another text", message.id)
            self.counts[f"evidence: {message.evidence}"] += is_accepted
            self.counts["replies held"] += message.status == "held"
            self.counts["replies held, though accepted"] += message.status == "held" and bool(accepted)
            self.counts["apologies"] += message.purpose == "apology"
            self.counts["replies tried more than once"] += len(message.intents) > 1

    def _by_text(self) -> None:
        """No question is named in two accepted messages, and none by an answer that does not cover it."""
        named: dict[int, list[str]] = defaultdict(list)
        for sent in self.record.sent:
            for number in numbers_in(sent.body):
                named[number].append(sent.sid)
        for number, sids in named.items():
            if len(sids) > 1:
                self._violation("answered twice", f"nr{number:06d}", sids)
        covered: dict[UUID, set[int]] = defaultdict(set)
        for came in self.record.came_in:
            said = self.record.said[came.sid]
            self.counts["taken in without its text"] += not came.has_text
            if came.answered_by is not None and came.has_text and said.kind in ("question", "long"):
                covered[came.answered_by].add(said.number)
        for reply_id, parts in self._parts.items():
            if parts[0].purpose != "answer":
                continue
            body = "".join(part.body for part in parts)
            if numbers_in(body) != covered[reply_id] and not (parts[0].status == "failed" and not covered[reply_id]):
                self._violation("answers other questions than it covers", reply_id, sorted(numbers_in(body)),
                                sorted(covered[reply_id]), parts[0].status, parts[0].held_reason)  # fmt: skip
            self.counts["identical answers"] += SAME.removesuffix(" [1]") in body

    def _covered(self, came: CameIn) -> None:
        """By one accepted reply; or visibly not; or it needs none."""
        said, reply = self.record.said[came.sid], came.answered_by
        ids = (f"nr{said.number:06d}", said.kind, came.id, came.conversation_id)
        if reply is None:
            return self._violation("still open", *ids)
        parts, job = self._parts.get(reply, []), self.record.jobs.get(reply)
        is_flagged = self.record.talks[came.conversation_id].is_flagged
        if reply == came.id:
            kind = "settled: asks nothing" if said.kind == "thanks" else "settled: opted out, or said already"
            if said.kind in ("question", "same", "long") and not self._was_out(came):
                return self._violation("settled without a reply", *ids)
        elif parts and all(self._accepted[part.id] for part in parts):
            kind = "answered"
        elif any(part.status == "held" for part in parts):
            kind = "waits: held"
            if not is_flagged:
                return self._violation("held without a flag", *ids)
        elif parts and all(part.held_reason == "opted_out" for part in parts if not self._accepted[part.id]):
            kind = "cancelled: opted out"
            if not self._was_out(came):
                return self._violation("cancelled, though nobody opted out", *ids)
        elif self._is_dead(reply, job):
            kind = "waits: dead letter"
            if not is_flagged:
                return self._violation("dead without a flag", *ids, job and job.error_class)
        else:
            story = [(part.status, part.held_reason) for part in parts]
            return self._violation("covered by nothing", *ids, reply, story, job and (job.status, job.closed_reason))
        self.counts[kind] += 1
        return None

    def _is_dead(self, reply: UUID, job: JobRow | None) -> bool:
        lines = [job for job in self.record.jobs.values() if job.message_id == str(reply)] if job is None else [job]
        return any(each.status == "failed" and each.closed_reason is None for each in lines)

    def _changes(self, conversation_id: UUID) -> list[tuple[str, CameIn]]:
        """What opted out and in, in the order in which it came in."""
        return [
            (self.record.said[came.sid].kind, came)
            for came in self.record.came_in
            if came.conversation_id == conversation_id and self.record.said[came.sid].kind in ("stop", "start")
        ]

    def _was_out(self, came: CameIn) -> bool:
        """Whether they had opted out when this came in, or have since."""
        changes = self._changes(came.conversation_id)
        before = [kind for kind, change in changes if change.seq < came.seq]
        return before[-1:] == ["stop"] or any(kind == "stop" and change.seq > came.seq for kind, change in changes)

    def _in_order(self) -> None:
        """The accepted messages of a conversation in the order in which they were made, and so in that of the questions."""
        last: dict[UUID, WentOut] = {}
        asked: dict[UUID, int] = {}
        for came in reversed(self.record.came_in):
            if came.answered_by is not None:
                asked[came.answered_by] = came.seq
        last_asked: dict[UUID, int] = {}
        for sent in self.record.sent:
            ours = _OURS.search(sent.status_callback or "")
            message = self._rows.get(UUID(ours[1])) if ours else None
            if message is None or self.restarted:
                continue
            before = last.get(message.conversation_id)
            if before is not None and (before.seq, before.part) > (message.seq, message.part):
                self._violation("out of order", message.conversation_id, before.id, "before", message.id)
            last[message.conversation_id] = message
            if message.reply_id in asked:
                if asked[message.reply_id] < last_asked.get(message.conversation_id, 0):
                    self._violation("answers out of order", message.conversation_id, message.id)
                last_asked[message.conversation_id] = asked[message.reply_id]

    def _paid_once(self) -> None:
        """One answer of the model a reply; one more for each attempt that was broken off before it had saved its draft."""
        by_number = {self.record.said[came.sid].number: came for came in self.record.came_in}
        paid: Counter[UUID] = Counter()
        for numbers in self.record.paid:
            jobs = {by_number[number].answered_by for number in numbers if number in by_number}
            jobs |= {by_number[number].prompted_by for number in numbers if number in by_number}
            for job_id in list(jobs)[:1] if len(jobs) == 1 else []:
                if job_id is not None:
                    paid[job_id] += 1
        for job_id, times in paid.items():
            job = self.record.jobs.get(job_id)
            if job is None or job.type != "autoreply":
                continue
            stops = sum(kind == "stop" for kind, _ in self._changes(job.conversation_id))
            self.counts["paid again, host or database lost"] += max(times - 1, 0)
            if times > 1 + job.broken_off + stops:
                self._violation("paid for twice", job_id, times, "answers,", job.broken_off, "attempts broken off")

    def _consent(self) -> None:
        """After STOP has been acknowledged no message is announced any more, but for the line that confirms it."""
        answered: dict[str, datetime] = {}
        for posted in self.record.posted:
            if posted.status is not None and posted.status < 300 and posted.sid not in answered:
                answered[posted.sid] = datetime.fromtimestamp(posted.time, UTC)
        for conversation_id, talk in self.record.talks.items():
            changes = self._changes(conversation_id)
            if not changes:
                continue
            self.counts["opted out or in"] += len(changes)
            if talk.is_opted_out != (changes[-1][0] == "stop"):
                self._violation("opted out, or not, against the last word", conversation_id)
            for index, (kind, change) in enumerate(changes):
                if kind != "stop" or change.sid not in answered:
                    continue
                until = changes[index + 1][1].created_at if index + 1 < len(changes) else None
                for message in self.record.went_out:
                    if message.conversation_id != conversation_id or message.purpose == "consent":
                        continue
                    late = [at for at in message.intents if at > answered[change.sid] and (until is None or at < until)]
                    if late and self._accepted[message.id]:
                        self._violation("sent after STOP", conversation_id, message.id)
