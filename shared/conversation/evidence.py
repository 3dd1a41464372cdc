"""What a look at Twilio's list says about a message that may have left: a pure decision.

Duplicates are worse than missing replies. So only a list that shows our message confirms it, only one that provably is up
to date may say that it is not there, and everything else is for a person.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.clients.twilio import Listed, Listing

CLOCK_SECONDS_AT_MOST = 30.0  # a clock that is further off than this tells nothing
EARLIER_SECONDS = 60.0  # a message may seem this much older than the attempt that made it
LOOK_EVERY_SECONDS = 10.0
LOOK_AT_LEAST_EVERY_SECONDS = 30.0
EMPTY_BEFORE_RESEND = 2
RESENDS_AT_MOST = 2  # of one message, by the machine


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the rows say about it. Times by our database's clock; `looked_at` is the last look that counted as empty.

    `waited` and `since_look` are seconds until now, from the last attempt and from that look.
    """

    body: str
    since: datetime  # the first attempt that may have left
    waited: float
    empties: int
    since_look: float | None
    resends: int
    has_rival: bool  # another message to this address is in doubt, from the same time


@dataclass(frozen=True, slots=True)
class Rule:
    """What the settings and people say: how long to wait, and whether nothing found means to send again.

    `is_ordered`: a person has asked for that, so the number of tries does not matter.
    """

    window_seconds: float
    may_resend: bool
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """It is with Twilio."""

    message: Listed


@dataclass(frozen=True, slots=True)
class Absent:
    """Not there, twice, and long enough after the attempt: it may be sent again."""


@dataclass(frozen=True, slots=True)
class Empty:
    """Not there; look again in `seconds`. `counts`: this look was far enough from the one before."""

    seconds: float
    counts: bool


@dataclass(frozen=True, slots=True)
class Unclear:
    """A look that tells nothing: it counts as a failed one. `word` is its class."""

    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Held:
    """A person decides. `word` goes into the message's story, `text` is what people read."""

    word: str
    text: str


type Judgement = Found | Absent | Empty | Unclear | Held


def offset_of(listing: Listing, answered_at: datetime) -> timedelta:
    """How far Twilio's clock is ahead of our database's, to a second."""
    return listing.date - answered_at


def candidates(listing: Listing, since: datetime, offset: timedelta) -> list[Listed]:
    """The listed messages that an attempt since then may have made."""
    first = since - timedelta(seconds=EARLIER_SECONDS)
    return [message for message in listing.messages if message.created - offset >= first]


def judge(
    doubt: Doubt,
    rule: Rule,
    listing: Listing,
    *,
    offset: timedelta,
    ours: Collection[str],
    is_up_to_date: bool,
) -> Judgement:
    """Decide on what was listed. `ours`: the sids on rows of ours; `is_up_to_date`: our last confirmed message is shown."""
    if abs(offset.total_seconds()) > CLOCK_SECONDS_AT_MOST:
        return Unclear("clock", f"Twilio's clock and ours are {offset.total_seconds():.0f} s apart")
    if not listing.reaches:
        return Unclear("too_many", "Twilio lists more messages to this address than are looked at")
    unaccounted = [message for message in candidates(listing, doubt.since, offset) if message.sid not in ours]
    if len(unaccounted) == 1 and not doubt.has_rival and _same(unaccounted[0].body, doubt.body):
        return Found(unaccounted[0])
    if unaccounted:
        said = "a message" if len(unaccounted) == 1 else f"{len(unaccounted)} messages"
        return Held(
            "foreign", f"it may have been sent: Twilio lists {said} to this address that may or may not be this one"
        )
    if not is_up_to_date:
        return Unclear("not_up_to_date", "Twilio's list does not show our last message, so it may lack this one too")
    return _absence(doubt, rule)


def wait_for_callback(doubt: Doubt, rule: Rule) -> Judgement:
    """The decision on a template, whose text in the list is not ours: a callback settles it, or a person."""
    if doubt.waited < rule.window_seconds:
        return Empty(_next_look(doubt, rule), counts=False)
    return Held("template", "it may have been sent as a template, and Twilio has not told what became of it")


def _absence(doubt: Doubt, rule: Rule) -> Judgement:
    counts = doubt.since_look is None or doubt.since_look >= LOOK_EVERY_SECONDS
    empties = doubt.empties + counts
    if not counts or empties < EMPTY_BEFORE_RESEND or doubt.waited < rule.window_seconds:
        return Empty(_next_look(doubt, rule), counts)
    if not rule.may_resend:
        return Held("not_found", "it may have been sent: Twilio does not list it, and the settings say to ask a person")
    if doubt.resends >= RESENDS_AT_MOST and not rule.is_ordered:
        return Held(
            "not_found", f"it may have been sent: {doubt.resends + 1} tries broke off, and Twilio lists none of them"
        )
    return Absent()


def _next_look(doubt: Doubt, rule: Rule) -> float:
    left = rule.window_seconds - doubt.waited
    return max(LOOK_EVERY_SECONDS, min(left, LOOK_AT_LEAST_EVERY_SECONDS))


def _same(theirs: str, ours: str) -> bool:
    """Whether two bodies are one text; white space may have been changed on the way."""
    said = theirs.split()
    return bool(said) and said == ours.split()
