"""`docs`: the documents that answers come from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from cli.environment import connection, database, person, wake_workers
from cli.output import AsJson, NothingMatched, Output, Status, plain, table
from shared.conversation.language import detect
from shared.errors import UserError
from shared.knowledge import Language, ingest
from shared.knowledge.search import search as search_chunks
from shared.knowledge.upload import NewDocument, read_upload

app = typer.Typer(help="The documents that answers come from.")

WAIT_SECONDS = 300.0
MODEL = ("azure_openai_endpoint", "azure_openai_chat_deployment", "azure_openai_embedding_deployment")


@app.command()
def add(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…")],
    language: Annotated[str | None, typer.Option(help="nl or en; found from the text when not given.")] = None,
    collection: Annotated[str, typer.Option(help="A name for documents that belong together.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until they can be found (a host must be running).")] = False,
    as_json: AsJson = False,
) -> None:
    """Store Markdown or text files and have them embedded; a file of the same name takes the old one's place."""
    output = Output(as_json=as_json)
    documents = [_read(path, _language(language), collection) for path in paths]  # all, before any is stored
    with connection() as opened:
        added = [ingest.add_document(opened, document) for document in documents]
        wake_workers(sum(what.outcome != "unchanged" for what in added))
        if wait:
            _wait(output, {document.id for document in added})
        states = {row.id: row for row in ingest.list_documents(opened)}
    rows = [
        (document.source_name, what.outcome, states[what.id].state, states[what.id].reason, what.id)
        for document, what in zip(documents, added, strict=True)
    ]
    data = {"documents": [dict(zip(("name", "outcome", "state", "reason", "id"), row, strict=True)) for row in rows]}
    columns = ["name", "outcome", "state", "reason", "id"]
    output.result(data, lambda console: console.print(table(columns, rows)))
    if any(states[what.id].state == "failed" for what in added):
        raise typer.Exit(Status.FAILED)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the documents and whether they can be found."""
    with connection() as opened:
        rows = ingest.list_documents(opened)
    if not rows:
        raise NothingMatched("There are no documents yet: add some with `docs add`.")
    shown = [
        (row.title, row.language, row.collection, row.state, row.reason, row.chunks, row.source_name, row.id)
        for row in rows
    ]
    columns = ["title", "language", "collection", "state", "reason", "chunks", "name", "id"]
    Output(as_json=as_json).result({"documents": rows}, lambda console: console.print(table(columns, shown)))


@app.command()
def remove(document_id: Annotated[UUID, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Remove a document: no answer is made from it any more. Answers that were sent keep its name."""
    with connection() as opened:
        title = ingest.remove_document(opened, document_id, who=person())
    if title is None:
        raise NothingMatched(f"There is no document {document_id}: see `docs list`.")
    data = {"removed": {"id": document_id, "title": title}}
    Output(as_json=as_json).result(data, lambda console: console.print(f"removed: {plain(title)}"))


@app.command()
def search(
    text: Annotated[str, typer.Argument()],
    limit: Annotated[int, typer.Option(min=1, max=50)] = 8,
    as_json: AsJson = False,
) -> None:
    """Show what a question finds, and why: cosine, text rank, and the score that orders them."""
    from shared.clients.azure_openai import AzureOpenAI

    if not text.strip():
        raise UserError("There is nothing to search for: give a question.")
    with database(*MODEL) as (settings, pool):
        embedder = AzureOpenAI(settings)
        embedding = embedder.embed([text])[0]
        with pool.connection() as opened:
            hits = search_chunks(
                opened, question=text, embedding=embedding, embedding_model=embedder.model,
                language=detect(text) or settings.default_language, asker=None, limit=limit,
            )  # fmt: skip
    if not hits:
        raise NothingMatched("Nothing was found: is a document ready? See `docs list`.")

    def show(console: Console) -> None:
        for hit in hits:
            where = " › ".join(hit.heading_path) or hit.document_title
            console.print(
                f"{hit.score:.3f}  cosine {hit.cosine:.3f}  text {hit.text_rank:.3f}  [{hit.language}] {plain(where)}"
            )
            console.print("       " + plain(" ".join(hit.text.split()))[:150])

    Output(as_json=as_json).result({"hits": hits}, show)


def _read(path: Path, language: Language | None, collection: str) -> NewDocument:
    try:
        data = path.read_bytes()
    except OSError as wrong:
        raise UserError(f"{path} cannot be read: {wrong.strerror}.") from wrong
    return read_upload(path.name, data, language, collection, detect=detect)


def _language(given: str | None) -> Language | None:
    match given:
        case None | "nl" | "en":
            return given
    raise UserError(f"--language {given} is not known: give nl or en.")


def _wait(output: Output, waiting: set[object]) -> None:
    output.note("waiting until they are embedded …")
    ends = time.monotonic() + WAIT_SECONDS
    while True:
        with connection() as opened:
            if not {row.id for row in ingest.list_documents(opened) if row.state == "waiting"} & waiting:
                return
        if time.monotonic() > ends:
            raise UserError("The documents are still waiting after five minutes: is a host running? See `jobs list`.")
        time.sleep(0.2)
