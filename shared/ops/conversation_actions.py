"""What a person does in a conversation. What cannot be done is said on the conversation's page, which keeps what was typed."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from shared.conversation import actions, detail, outgoing, settle, suggestions
from shared.db.pool import Conn
from shared.errors import UserError
from shared.ops import conversations
from shared.ops.routes import Route, action
from shared.ops.visit import Visit


def take_over(visit: Visit) -> Response:
    """From now on a person answers."""
    return _act(visit, lambda on: actions.take_over(on, visit.id(), who=visit.who), notice="taken_over")


def hand_back(visit: Visit) -> Response:
    """From now on the assistant answers; what waits only with `answer_waiting`."""
    answers = visit.form.flag("answer_waiting")

    def work(connection: Conn) -> None:
        seen = visit.form.number("seen_seq")
        actions.hand_back(connection, visit.id(), who=visit.who, answer_waiting=answers, seen_seq=seen)

    return _act(visit, work, notice="handed_back_answering" if answers else "handed_back")


def resolve(visit: Visit) -> Response:
    """Nobody needs to look any more."""
    return _act(visit, lambda on: actions.resolve(on, visit.id(), who=visit.who), notice="resolved")


def answer(visit: Visit) -> Response:
    """Send a person's own answer: once, however often its form is sent."""
    text = visit.form.raw("text")

    def work(connection: Conn) -> None:
        seen = visit.form.number("seen_seq") or 0
        with connection.transaction():
            outgoing.lock(connection, visit.id())
            if not detail.sent_already(connection, visit.id(), outgoing.sendable(text), seen_seq=seen):
                actions.send_own(connection, visit.id(), text, who=visit.who, seen_seq=seen)

    return _act(visit, work, notice="answer_sent", typed=text)


def ask(visit: Visit) -> Response:
    """Ask for a suggestion."""
    return _act(visit, lambda on: suggestions.ask(on, visit.id(), who=visit.who), notice="suggestion_asked")


def approve(visit: Visit) -> Response:
    """Send a suggestion, as it is or as it was edited."""
    suggestion_id, text = visit.id("suggestion"), visit.form.raw("text")
    edited = text if visit.form.flag("is_edited") else None
    return _act(
        visit,
        lambda on: suggestions.approve(on, suggestion_id, who=visit.who, text=edited),
        notice="suggestion_sent",
        typed=edited,
    )


def reject(visit: Visit) -> Response:
    """Put a suggestion aside."""
    suggestion_id = visit.id("suggestion")
    return _act(visit, lambda on: suggestions.reject(on, suggestion_id, who=visit.who), notice="suggestion_rejected")


def look_again(visit: Visit) -> Response:
    """Ask Twilio once more about a held message; nothing is sent."""
    message_id = visit.id("message")
    return _act(visit, lambda on: settle.look_again(on, message_id, who=visit.who), notice="looking_again")


def send_again(visit: Visit) -> Response:
    """Send a message that did not arrive, once Twilio has shown that it does not have it."""
    message_id = visit.id("message")
    return _act(visit, lambda on: settle.send_again(on, message_id, who=visit.who), notice="sending_again")


def close_unsent(visit: Visit) -> Response:
    """Let a held or unsent message be."""
    message_id, reason = visit.id("message"), visit.form.raw("reason")
    return _act(
        visit,
        lambda on: settle.close_without_sending(on, message_id, who=visit.who, reason=reason),
        notice="closed_unsent",
    )


def _act(visit: Visit, work: Callable[[Conn], object], *, notice: str, typed: str | None = None) -> Response:
    try:
        with visit.database.connection() as connection:
            work(connection)
    except UserError as wrong:
        return conversations.show(visit, problem=wrong, typed=typed)
    visit.wake()
    return visit.back(f"/conversations/{visit.id()}", notice=notice)


ANSWER_BYTES = 256 * 1024  # the longest answer, in a script whose letters take nine bytes in a form

ROUTES: tuple[Route, ...] = (
    action("/conversations/{id:uuid}/take-over", take_over),
    action("/conversations/{id:uuid}/hand-back", hand_back),
    action("/conversations/{id:uuid}/resolve", resolve),
    action("/conversations/{id:uuid}/answer", answer, limit=ANSWER_BYTES),
    action("/conversations/{id:uuid}/suggest", ask),
    action("/conversations/{id:uuid}/suggestions/{suggestion:uuid}/approve", approve, limit=ANSWER_BYTES),
    action("/conversations/{id:uuid}/suggestions/{suggestion:uuid}/reject", reject),
    action("/conversations/{id:uuid}/messages/{message:uuid}/look-again", look_again),
    action("/conversations/{id:uuid}/messages/{message:uuid}/send-again", send_again),
    action("/conversations/{id:uuid}/messages/{message:uuid}/close", close_unsent),
)
