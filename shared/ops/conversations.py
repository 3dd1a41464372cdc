"""Conversations: the list with its filter, and one conversation with its thread and what a person can do about it."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from starlette.responses import Response

from shared.conversation import detail, events, listing, suggestions
from shared.conversation.outgoing import TEXT_UNITS_AT_MOST
from shared.conversation.text import utf16_units
from shared.errors import UserError
from shared.knowledge import passages
from shared.ops import message_story, refusal, thread
from shared.ops.render import url
from shared.ops.routes import Route, page
from shared.ops.visit import Visit

LIST_SIZE = 50
THREAD_SIZE = 50
SHOW: Final = ("needs_person",)
MODES: Final = ("auto", "manual")


def conversations(visit: Visit) -> Response:
    """The list."""
    return visit.page("conversations/list.html", **_listed(visit))


def live_conversations(visit: Visit) -> Response:
    """Its rows."""
    shown = _listed(visit)
    return visit.live("conversations", "conversations/rows.html", shown["live_url"], **shown)


def conversation(visit: Visit) -> Response:
    """One conversation, or an older page of its thread."""
    return show(visit)


def show(visit: Visit, *, problem: UserError | None = None, typed: str | None = None) -> Response:
    """The page of the visited conversation; after an action that could not be done, with why, and with what was typed."""
    before = None if problem else visit.query.number("before")
    suggestion_id = (visit.form if problem else visit.query).uuid("suggestion")
    shown = _one(visit, before)
    if shown is None:
        return visit.missing()
    suggestion, obstacle = shown["suggestion"], shown["conversation"].obstacle
    edited = suggestion if suggestion_id and suggestion and suggestion.id == suggestion_id else None
    text = typed if typed is not None else edited.text if edited else ""
    address = url(f"/conversations/{visit.id()}")
    return refusal.page_with(
        visit,
        problem,
        "conversations/one.html",
        address,
        target=address if problem else visit.incoming.target,
        edited=edited,
        is_gone=bool(suggestion_id and not edited and not problem),
        text=text,
        too_many=max(utf16_units(text.strip().replace("\r\n", "\n")) - TEXT_UNITS_AT_MOST, 0),
        most=TEXT_UNITS_AT_MOST,
        newest=url(f"/conversations/{visit.id()}") if before else None,
        live_url=_live_url(visit, shown["stamp"], is_closed=obstacle is not None),
        is_closed=obstacle is not None,
        **shown,
    )


def live_conversation(visit: Visit) -> Response:
    """All of the newest page that changes by itself; one statement when nothing has."""
    with visit.database.connection() as connection:
        stamp = detail.stamp(connection, visit.id(), limit=THREAD_SIZE)
    if stamp is not None and stamp == visit.query.text("stamp"):
        return Response(status_code=204)
    shown = _one(visit, None)
    if shown is None:
        return visit.missing()
    is_closed = visit.query.flag("closed")
    address = _live_url(visit, shown["stamp"], is_closed=is_closed)
    return visit.live("conversation", "conversations/room.html", address, is_closed=is_closed, **shown)


def _listed(visit: Visit) -> dict[str, Any]:
    text = visit.query.text("q")
    only, mode = visit.query.choice("show", SHOW), visit.query.choice("mode", MODES)
    after = listing.Key.read(visit.query.text("after"))
    with visit.database.connection() as connection:
        rows = listing.page(
            connection, text=text, needs_person=only is not None, mode=mode, after=after, limit=LIST_SIZE + 1
        )
    query = {"q": text, "show": only, "mode": mode}
    more = rows[LIST_SIZE - 1].key if len(rows) > LIST_SIZE else None
    return {
        "rows": rows[:LIST_SIZE],
        "query": query,
        "older": url("/conversations", **query, after=more) if more else None,
        "newest": url("/conversations", **query) if after else None,
        "live_url": url("/live/conversations", **query, after=after),
    }


def _one(visit: Visit, before: int | None) -> dict[str, Any] | None:
    """What the thread, the state and the suggestion are drawn from."""
    with visit.database.connection() as connection:
        # First, so that what is shown is at least as new as its stamp.
        stamp = detail.stamp(connection, visit.id(), limit=THREAD_SIZE)
        found = detail.find(connection, visit.id())
        if found is None:
            return None
        messages = detail.thread(connection, found.id, before=before, limit=THREAD_SIZE + 1)
        drafting = detail.drafting(connection, found.id)
        newest = suggestions.of_conversation(connection, found.id, limit=3)
        suggestion = next((one for one in newest if one.state == "open"), None)
        cited = [message.citations for message in messages] + ([suggestion.citations] if suggestion else [])
        known = passages.find(connection, thread.chunk_ids(cited))
        happened = events.of_messages(connection, [message.id for message in messages if message.from_self])
    may_send = found.obstacle is None or (
        found.obstacle == "outside_window" and visit.settings.twilio_template_sid is not None
    )
    more, messages = len(messages) > THREAD_SIZE, messages[-THREAD_SIZE:]
    return {
        "stamp": stamp,
        "conversation": found,
        "days": thread.by_day(messages),
        "sources": {message.id: thread.sources(message.citations, known) for message in messages},
        "told": message_story.tell(messages, happened, may_send=may_send),
        "media": {message.id: thread.kinds_of_media(message) for message in messages},
        "with_job": thread.with_job(messages),
        "has_open": any(message.is_open for message in messages),
        "seen_seq": messages[-1].seq if messages else 0,
        "older": url(f"/conversations/{found.id}", before=messages[0].seq) if more else None,
        "suggestion": suggestion,
        "suggested": thread.sources(suggestion.citations, known) if suggestion else [],
        "drafting": drafting,
        "progress": thread.progress(found, drafting, suggestion),
        "clock": thread.clock,
    }


def _live_url(visit: Visit, stamp: str | None, *, is_closed: bool) -> str:
    """`closed`: the page has no field for an answer, and says so when one could be given again."""
    conversation_id: UUID = visit.id()
    return url(f"/live/conversations/{conversation_id}", stamp=stamp, closed=1 if is_closed else None)


ROUTES: tuple[Route, ...] = (
    page("/conversations", conversations),
    page("/live/conversations", live_conversations),
    page("/conversations/{id:uuid}", conversation),
    page("/live/conversations/{id:uuid}", live_conversation),
)
