"""What became of a message of ours, told for people: the tries, what settled a doubt, why it is held, what can be done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from shared.conversation.detail import Message
from shared.conversation.events import Event

TONES = {
    "accepted": "good", "lookup_found": "good", "callback": "good", "refused": "bad", "second_sid": "bad", "held": "bad",
    "not_sent": "wait", "ambiguous": "wait", "lookup_failed": "wait", "lookup_foreign": "wait",
}  # fmt: skip
UNSENT = ("held", "failed")


@dataclass(frozen=True, slots=True)
class Step:
    """One line. `name` is a line `sent.NAME` of the catalogue; `said` is what Twilio said, `code` its code, `why` a class.

    `times` the same in a row are one line, with the time of the last.
    """

    name: str
    tone: str
    at: datetime
    attempt: int
    said: str | None = None
    code: str | None = None
    why: str | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Actions:
    """What a person can do with a message. `sends`: after_look, unsent (it never left) or anew (as a new message)."""

    looks: bool = False
    sends: str | None = None
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """All that a page says about how a message was sent. `settled`: what settled a doubt; `doubt`: why it is held."""

    steps: list[Step]
    settled: str | None
    doubt: str | None
    actions: Actions


def tell(messages: Iterable[Message], events: Mapping[UUID, Sequence[Event]], *, may_send: bool) -> dict[UUID, Told]:
    """The story of each message of ours. `may_send`: the employee may be written to now, or a template can carry it.

    Buttons stand at the first message of a reply that is stuck: what is done there is done to the parts behind it too.
    """
    told: dict[UUID, Told] = {}
    stuck: set[UUID] = set()
    for message in messages:
        if not message.from_self:
            continue
        found = events.get(message.id, ())
        is_stuck = message.status in UNSENT and not message.is_accepted and message.has_dead_letter
        is_first = is_stuck and message.reply_id not in stuck
        if is_stuck and message.reply_id:
            stuck.add(message.reply_id)
        told[message.id] = Told(
            list(_joined(_step(event) for event in found)),
            message.evidence if message.is_accepted and _was_in_doubt(found) else None,
            _doubt(message, found) if message.is_in_doubt else None,
            _actions(message, is_first=is_first, may_send=may_send),
        )
    return told


def _actions(message: Message, *, is_first: bool, may_send: bool) -> Actions:
    if message.status == "failed" and message.is_accepted:
        return Actions(sends="anew" if may_send and not message.is_retried else None)
    if not is_first:
        return Actions()
    sends = "after_look" if message.is_in_doubt else "unsent"
    return Actions(looks=message.is_in_doubt, sends=sends if may_send else None, closes=True)


def _was_in_doubt(events: Sequence[Event]) -> bool:
    """Whether a look was needed, or a second try: a process that was killed leaves no other trace."""
    return any(event.what == "ambiguous" or event.what.startswith("lookup_") for event in events)


def _doubt(message: Message, events: Sequence[Event]) -> str:
    """A line `doubt.NAME`: what the last looks have shown."""
    since = max((place for place, event in enumerate(events) if event.what == "intent"), default=0)
    looks = [event.what for event in events[since:] if event.what.startswith("lookup_")]
    if "lookup_foreign" in looks:
        return "foreign"
    if message.template_sid:
        return "template"
    return {"lookup_failed": "failing", "lookup_empty": "not_found"}.get(looks[-1] if looks else "", "unknown")


def _step(event: Event) -> Step:
    detail = event.detail or ""
    step = Step(event.what, TONES.get(event.what, "calm"), event.at, event.attempt)
    match event.what:
        case "callback" | "lookup_found":
            said, *rest = detail.split() or [""]
            code = next((word for word in rest if word.isdecimal()), None)
            is_bad = said in ("failed", "undelivered", "canceled")
            return replace(step, said=said or None, code=code, tone="bad" if is_bad else step.tone)
        case "refused" | "retried":
            return replace(step, code=detail or None)
        case "released":
            return replace(step, name=detail or "released")
        case "intent":
            return replace(step, name="intent_template" if detail else "intent")
        case "not_sent" | "ambiguous" | "lookup_failed" | "held":
            return replace(step, why=detail or None)
    return step


def _joined(steps: Iterable[Step]) -> Iterable[Step]:
    last: Step | None = None
    for step in steps:
        if last is not None and (last.name, last.said, last.code, last.why) == (
            step.name, step.said, step.code, step.why
        ) and step.name.startswith("lookup_"):  # fmt: skip
            last = replace(step, times=last.times + 1)
            continue
        if last is not None:
            yield last
        last = step
    if last is not None:
        yield last
