"""Finding out what became of a message that may have left: callbacks first, then Twilio's own list.

A look is a step of the job: the list is fetched with no transaction open, and judged in one that has locked the conversation,
so that no callback and no other worker comes in between. What is decided is written there, with what it was decided on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared import telemetry
from shared.boundary import Boundary, Checkpoint
from shared.clients.deadline import boot_clock
from shared.clients.twilio import Line, Listed, Listing
from shared.conversation import doubts, receipt
from shared.conversation.doubts import Anchor, Doubtful
from shared.conversation.evidence import (
    EARLIER_SECONDS,
    LOOK_AT_LEAST_EVERY_SECONDS,
    Absent,
    Empty,
    Found,
    Held,
    Judgement,
    Rule,
    Unclear,
    candidates,
    judge,
    offset_of,
    wait_for_callback,
)
from shared.conversation.parts import Outbound
from shared.conversation.receipt import Receipt
from shared.db.pool import Conn
from shared.errors import Failure, HeldError, classify
from shared.queue.job import Lease, Snooze

# What Twilio's clock may be behind ours before a list tells nothing, and what an attempt may seem younger than its message.
MARGIN = timedelta(seconds=EARLIER_SECONDS + 30.0)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look has brought; `answered_at` is by our database's clock."""

    listing: Listing
    answered_at: datetime
    is_up_to_date: bool


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Settles doubts within `window_seconds`; `may_resend`: what Twilio does not have is sent again, else held."""

    line: Line
    window_seconds: float
    may_resend: bool
    template_sid: str | None
    checkpoint: Checkpoint

    def look(self, lease: Lease, message: Outbound) -> Snooze | None:
        """One look. None: the rows say now that Twilio has it, or that it may be sent. Raises HeldError: a person decides."""
        began = boot_clock()
        with lease.transaction() as connection:
            found = doubts.read(connection, message.id)
            anchor = doubts.anchor(connection, message)
        if found is None:
            return None  # a callback has told meanwhile
        look = None
        if found.template_sid is None:
            try:
                look = self._fetch(message, found, anchor, began)
            except Exception as error:  # noqa: BLE001 - whatever stops us from looking says nothing about the message
                self.checkpoint(Boundary.LOOKED_UP)
                failure = classify(error)
                telemetry.warning("lookup_failed", message_id=message.id, error_class=failure.error_class)
                return self._follow(lease, found.attempt, message, failure)
        self.checkpoint(Boundary.LOOKED_UP)
        return self._follow(lease, found.attempt, message, look)

    def _fetch(self, message: Outbound, found: Doubtful, anchor: Anchor | None, began: float) -> _Look:
        since = found.since - MARGIN
        listing = self.line.find(to=message.address, since=since)
        answered_at = found.now + timedelta(seconds=boot_clock() - began)
        shown: tuple[Listed, ...] = ()
        if anchor is not None:
            shown = (listing if anchor.is_to_address else self.line.find(to=None, since=since)).messages
        return _Look(listing, answered_at, anchor is not None and any(listed.sid == anchor.sid for listed in shown))

    def _follow(self, lease: Lease, attempt: int, message: Outbound, look: _Look | Failure | None) -> Snooze | None:
        """Judge a look and write down what follows, in one transaction."""
        with lease.transaction() as connection:
            found = doubts.read(connection, message.id)
            if found is None or found.attempt != attempt:
                return None
            if isinstance(look, Failure):
                judgement: Judgement = Unclear(look.error_class, look.text)
            else:
                judgement = self._judge(connection, found, look)
            outcome = self._write(connection, found, judgement)
        if isinstance(outcome, HeldError):
            raise outcome
        if isinstance(judgement, Absent):
            self.checkpoint(Boundary.RELEASED)
        return outcome

    def _judge(self, connection: Conn, found: Doubtful, look: _Look | None) -> Judgement:
        may_resend = self.may_resend if found.when_absent is None else found.when_absent == "resend"
        rule = Rule(self.window_seconds, may_resend, is_ordered=found.when_absent == "resend")
        if look is None:
            return wait_for_callback(found.doubt, rule)
        offset = offset_of(look.listing, look.answered_at)
        listed = [message.sid for message in candidates(look.listing, found.since, offset)]
        return judge(
            found.doubt, rule, look.listing,
            offset=offset, ours=doubts.ours(connection, listed), is_up_to_date=look.is_up_to_date,
        )  # fmt: skip

    def _write(self, connection: Conn, found: Doubtful, judgement: Judgement) -> Snooze | HeldError | None:
        match judgement:
            case Found(listed):
                told = Receipt(listed.sid, listed.status, listed.error_code, "list")
                receipt.record(connection, found.id, told, template_sid=self.template_sid)
            case Absent():
                doubts.note_empty(connection, found, counts=True)
                doubts.release(connection, found)
            case Empty(seconds, counts):
                doubts.note_empty(connection, found, counts=counts)
                return Snooze(seconds, "it may have been sent: Twilio is asked again")
            case Unclear(word, text):
                failing = doubts.note_failed(connection, found, word)
                if failing >= doubts.FAILING_SECONDS_AT_MOST:
                    return HeldError("held", f"it may have been sent, and looking has failed for half an hour: {text}")
                return Snooze(LOOK_AT_LEAST_EVERY_SECONDS, f"it may have been sent, and Twilio cannot be asked: {text}")
            case Held(word, text):
                if word == "foreign":
                    doubts.note_foreign(connection, found)
                return HeldError("held", text)
        return None
