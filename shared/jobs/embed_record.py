"""`embed_record`: make a document or a person's own record findable; embed what is new, and swap it in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from shared.errors import Failure, PermanentError
from shared.jobs.payload import id_in
from shared.jobs.services import Services
from shared.knowledge import ingest, people_record
from shared.queue.job import Complete, Job, Lease, Verdict, Write


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Embed the record that the payload names; the same content is not embedded again."""
    match job.payload.get("record"):
        case "document":
            return _document(services, id_in(job, "id"), lease)
        case "person":
            return _person(services, id_in(job, "id"), lease)
        case other:
            raise PermanentError("bad_payload", f"a record of kind {other!r} cannot be embedded")


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Say on the document why it cannot be found; an outdated record of a person is found no more."""
    del services
    match job.payload.get("record"):
        case "document":
            return [ingest.fail_document(id_in(job, "id"), f"{failure.error_class}: {failure.text}")]
        case "person":
            return [Write(people_record.DELETE_RECORD, {"id": id_in(job, "id")})]
        case _:
            return ()


def _document(services: Services, document_id: UUID, lease: Lease) -> Verdict:
    with services.database.connection() as connection:
        document = ingest.read_document(connection, document_id)
        known = ingest.known_embeddings(connection, document_id, services.embedder.model)
    if document is None:
        return Complete(shows_health=False)  # removed meanwhile
    chunks = ingest.embed_document(document, known, services.embedder)
    with lease.transaction() as connection:
        ingest.replace_chunks(connection, document, chunks)
    return Complete(shows_health=any(chunk.content_sha256 not in known for chunk in chunks))


def _person(services: Services, person_id: UUID, lease: Lease) -> Verdict:
    default_language, model = services.settings.default_language, services.embedder.model
    with services.database.connection() as connection:
        person = people_record.read_person(connection, person_id, default_language)
    if person is None or person.has_left:
        return Complete([Write(people_record.DELETE_RECORD, {"id": person_id})], shows_health=False)
    record = people_record.record_of(person)
    with services.database.connection() as connection:
        known = people_record.known_embedding(connection, person_id, record, model)
    embedding = known or people_record.embed_record(record, services.embedder)
    with lease.transaction() as connection:
        people_record.put_record(
            connection, person, record, embedding, embedding_model=model, default_language=default_language
        )
    return Complete(shows_health=known is None)
