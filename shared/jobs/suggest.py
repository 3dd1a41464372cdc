"""`suggest`: draft an answer for a person, who sends, edits or rejects it. Nothing goes out from here.

What the documents do not say is no suggestion: the conversation is flagged as unanswered instead. The work is done anew by a
retry, since a suggestion that nobody has seen yet is replaced by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from shared.conversation import attention, decision, held_back, suggestions, thread
from shared.conversation.consent import Language
from shared.conversation.language import detect
from shared.errors import Failure
from shared.jobs.answer import make_answer
from shared.jobs.payload import id_in
from shared.jobs.services import Services
from shared.queue.job import Complete, Job, Lease, Verdict, Write


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Draft what somebody asked for by a button: an answer to what is open, or else to the last question."""
    with lease.transaction() as connection:
        found, open_ids = thread.look_back(connection, id_in(job, "conversation_id"))
    if found.situation.is_opted_out or not found.text:
        return Complete(shows_health=False)
    language = decision.language_of(found, detect(found.text), services.settings.default_language)
    return _draft(services, job, found, language, asked_by=str(job.payload["asked_by"]), answers=open_ids)


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Nobody waits for it but the one who asked, and that one sees the dead letter beside the conversation."""
    del services, job, failure
    return ()


def beside_a_person(services: Services, job: Job, lease: Lease, found: thread.Thread, language: Language) -> Verdict:
    """An autoreply of a conversation that a person has taken over: the messages stay open, and that person is asked at once."""
    with lease.transaction() as connection:
        held_back.flag_waiting(connection, found.situation.id)
    answers = [message.id for message in found.fresh]
    return _draft(services, job, found, language, asked_by=suggestions.BY_MANUAL_MODE, answers=answers)


def _draft(
    services: Services, job: Job, found: thread.Thread, language: Language, *, asked_by: str, answers: Sequence[UUID]
) -> Verdict:
    drafted = make_answer(services, found, found.text, language, for_person=True)
    if drafted.purpose != "answer":
        return Complete([attention.flag(found.situation.id, "unanswered")], shows_health=drafted.model is not None)
    return Complete([
        suggestions.store(
            conversation_id=found.situation.id, job_id=job.id, asked_by=asked_by, answers=answers,
            covered_by=found.open[0].answered_by, text=drafted.body,
            language=drafted.language, citations=drafted.citations, model=drafted.model,
            prompt_version=drafted.prompt_version, sources_hash=drafted.sources_hash, parameters=drafted.parameters,
        )
    ])  # fmt: skip
