"""Documents: the list, one with its pieces, adding, embedding again and removing."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from shared.conversation.language import detect
from shared.errors import UserError
from shared.knowledge import Language
from shared.knowledge.ingest import add_document, remove_document
from shared.knowledge.upload import SIZE_LIMIT, SUFFIXES, read_upload
from shared.ops import documents_query, failures
from shared.ops.refusal import chosen
from shared.ops.render import url
from shared.ops.routes import Route, action, form, page
from shared.ops.visit import Visit

LANGUAGES: Final[tuple[Language, ...]] = ("nl", "en")
COLLECTION_CHARACTERS = 100


def documents(visit: Visit) -> Response:
    """The list."""
    return visit.page("documents/list.html", **_listed(visit))


def live_documents(visit: Visit) -> Response:
    """Its rows, and how many there are in each state."""
    shown = _listed(visit)
    return visit.live("documents", "documents/rows.html", shown["live_url"], **shown)


def document(visit: Visit) -> Response:
    """One document."""
    shown = _one(visit)
    return visit.page("documents/one.html", **shown) if shown else visit.missing()


def live_document(visit: Visit) -> Response:
    """Its state and its pieces."""
    shown = _one(visit)
    return visit.live("document", "documents/document.html", shown["live_url"], **shown) if shown else visit.missing()


def new(visit: Visit) -> Response:
    """The form to add one."""
    return _form(visit, collection=visit.query.text("collection", COLLECTION_CHARACTERS) or "")


def add(visit: Visit) -> Response:
    """Store a file, or say on the form why it cannot be."""
    language = visit.form.choice("language", LANGUAGES)
    collection = visit.form.text("collection", COLLECTION_CHARACTERS) or ""
    upload = visit.form.file("file")
    try:
        file = chosen(upload)
        read = read_upload(file.name, file.data, language, collection, detect=detect)
    except UserError as wrong:
        sentence = failures.sentence(visit, wrong)
        return _form(visit, 409, language, collection, sentence=sentence, file_name=upload.name if upload else None)
    with visit.database.transaction() as connection:
        added = add_document(connection, read)
        if added.outcome != "unchanged":
            visit.audit(connection, "add_document", "document", added.id, title=read.title, collection=read.collection,
                        name=read.source_name, outcome=added.outcome)  # fmt: skip
    if added.outcome != "unchanged":
        visit.wake()
    return visit.back(f"/documents/{added.id}", notice=f"document_{added.outcome}")


def embed(visit: Visit) -> Response:
    """Try once more to make a failed document findable."""
    with visit.database.connection() as connection:
        if documents_query.find_document(connection, visit.id()) is None:
            return visit.missing()
        documents_query.embed_again(connection, visit.id(), who=visit.who)
    visit.wake()
    return visit.back(f"/documents/{visit.id()}", notice="document_again")


def ask_to_remove(visit: Visit) -> Response:
    """Is this the one, and what will be gone?"""
    with visit.database.connection() as connection:
        found = documents_query.find_document(connection, visit.id())
    return visit.page("documents/remove.html", document=found) if found else visit.missing()


def remove(visit: Visit) -> Response:
    """Remove it with its pieces."""
    with visit.database.connection() as connection:
        title = remove_document(connection, visit.id(), who=visit.who)
    return visit.missing() if title is None else visit.back("/documents", notice="document_removed")


def _listed(visit: Visit) -> dict[str, Any]:
    state, after = visit.query.choice("state", documents_query.STATES), visit.query.uuid("after")
    with visit.database.connection() as connection:
        rows, last = documents_query.list_documents(connection, state=state, after=after)
        counts = documents_query.count_by_state(connection)
    return {
        "rows": rows,
        "state": state,
        "states": documents_query.STATES,
        "counts": counts,
        "total": sum(counts.values()),
        "following": url("/documents", state=state, after=last) if last else None,
        "first": url("/documents", state=state) if after else None,
        "live_url": url("/live/documents", state=state, after=after),
    }


def _one(visit: Visit) -> dict[str, Any] | None:
    sought, first = visit.query.uuid("chunk"), visit.query.number("from") or 0
    with visit.database.connection() as connection:
        found = documents_query.find_document(connection, visit.id())
        if found is None:
            return None
        place = documents_query.place_of(connection, found.id, sought) if sought else None
        if place is not None:
            first = place - place % documents_query.CHUNKS_SHOWN
        chunks, following = documents_query.chunks_of(connection, found.id, first=first)
    path, before = f"/documents/{found.id}", max(first - documents_query.CHUNKS_SHOWN, 0)
    return {
        "document": found,
        "chunks": chunks,
        "sought": sought,
        "is_gone": sought is not None and place is None,
        "before": url(path, **{"from": before or None}) if first else None,
        "following": url(path, **{"from": following}) if following else None,
        "live_url": url(f"/live{path}", chunk=sought, **{"from": first or None}),
    }


def _form(visit: Visit, status: int = 200, language: str | None = None, collection: str = "", **said: Any) -> Response:
    with visit.database.connection() as connection:
        collections = documents_query.collections(connection)
    return visit.page(
        "documents/new.html", status, language=language, collection=collection, collections=collections,
        languages=LANGUAGES, suffixes=SUFFIXES, megabytes=SIZE_LIMIT // 1_000_000, **{"sentence": None, **said},
    )  # fmt: skip


ROUTES: tuple[Route, ...] = (
    page("/documents", documents),
    page("/live/documents", live_documents),
    form("/documents/new", new),
    action("/documents/new", add, upload=True),
    page("/documents/{id:uuid}", document),
    page("/live/documents/{id:uuid}", live_document),
    action("/documents/{id:uuid}/embed", embed),
    form("/documents/{id:uuid}/remove", ask_to_remove),
    action("/documents/{id:uuid}/remove", remove),
)
