"""`embed_record`: cut a document into chunks, embed what is new, and swap its chunks in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from shared.errors import Failure, PermanentError
from shared.jobs.services import Services
from shared.knowledge import ingest
from shared.queue.job import Complete, Job, Lease, Verdict, Write


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Embed the record that the payload names; the same content is not embedded again."""
    if job.payload.get("record") != "document":
        raise PermanentError("bad_payload", f"a record of kind {job.payload.get('record')!r} cannot be embedded")
    document_id = UUID(job.payload["id"])
    with services.database.connection() as connection:
        document = ingest.read_document(connection, document_id)
        known = ingest.known_embeddings(connection, document_id, services.embedder.model)
    if document is None:
        return Complete()  # removed meanwhile
    chunks = ingest.embed_document(document, known, services.embedder)
    with lease.transaction() as connection:
        ingest.replace_chunks(connection, document, chunks)
    return Complete()


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Say on the document why it cannot be found."""
    del services
    if job.payload.get("record") != "document":
        return ()
    reason = f"{failure.error_class}: {failure.text}"[: ingest.REASON_LIMIT]
    return [Write(ingest.FAIL_DOCUMENT, {"id": UUID(job.payload["id"]), "reason": reason})]
