"""`autoreply`: one answer to all that is open in a conversation; guard, retrieve, draft, intent, send, confirm.

What a run finds in the rows decides where it goes on. A draft is sent, never made anew: a retry says the same and pays once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from shared.boundary import Boundary
from shared.conversation import attention, decision, doubts, held_back, parts, reply, thread, words
from shared.conversation.consent import Language
from shared.conversation.decision import Line, Nothing, Question, Suggestion
from shared.conversation.language import detect
from shared.db.pool import Conn, one
from shared.errors import Failure, FailureKind, PermanentError
from shared.jobs import suggest
from shared.jobs.answer import Drafted, make_answer
from shared.jobs.payload import id_in
from shared.jobs.services import Services
from shared.queue.job import Complete, Continue, Job, Lease, Verdict, Write
from shared.queue.store import enqueue_write, note_answer

# A burial covers the messages that its job has read, so that one that kills its job does not kill the next: only a restart
# or a person answers them. What came in later has a job of its own. A job that never came to read covers all.
COVER_BURIED = """
    UPDATE messages SET answered_by = %(job_id)s
    WHERE conversation_id = %(conversation_id)s AND NOT from_self AND answered_by IS NULL
        AND (prompted_by = %(job_id)s OR NOT EXISTS (
            SELECT FROM messages p WHERE p.conversation_id = %(conversation_id)s AND p.prompted_by = %(job_id)s))
"""
# Only inside WhatsApp's 24 hours, and not to somebody who has opted out or is already talking with a person.
APOLOGISE = """
    WITH line AS (
        INSERT INTO messages (id, conversation_id, from_self, source, purpose, body, status, reply_id, part, parts, language)
        SELECT %(line_id)s, id, true, 'system', 'apology',
            CASE coalesce(language, %(default_language)s) WHEN 'nl' THEN %(nl)s ELSE %(en)s END,
            'draft', %(line_id)s, 1, 1, coalesce(language, %(default_language)s)
        FROM conversations
        WHERE id = %(conversation_id)s AND opted_out_at IS NULL AND mode = 'auto'
            AND last_inbound_at > now() - interval '24 hours'
            AND NOT EXISTS (SELECT FROM messages r WHERE r.reply_id = %(job_id)s
                AND (r.status IN ('sending', 'sent', 'delivered', 'read') OR r.provider_sid IS NOT NULL
                    OR r.status = 'held' AND r.send_started_at IS NOT NULL))
        RETURNING id, conversation_id
    )
    INSERT INTO ai_jobs (payload, conversation_id)
    SELECT jsonb_build_object('type', 'send_message', 'message_id', id), conversation_id FROM line
"""
# What the rows say counts more than the failure: a burial may find a message that had left.
FLAG_BURIED = """
    UPDATE conversations SET needs_person_since = coalesce(needs_person_since, now()),
        needs_person_reason = CASE WHEN EXISTS (
            SELECT FROM messages r WHERE r.reply_id = %(job_id)s
                AND (r.status = 'sending' OR r.status = 'held' AND r.send_started_at IS NOT NULL))
            THEN 'held' ELSE %(reason)s END
    WHERE id = %(conversation_id)s
"""
STILL_OPEN = "SELECT FROM messages WHERE id = ANY (%(ids)s) AND answered_by IS NULL"
IS_TAKEN_OVER = "SELECT FROM conversations WHERE id = %(id)s AND mode = 'manual'"
NO_ANSWER_DUE = "UPDATE messages SET answered_by = id WHERE id = ANY (%(ids)s) AND answered_by IS NULL"
SET_LANGUAGE = "UPDATE conversations SET language = %(language)s WHERE id = %(conversation_id)s"


WITHOUT_APOLOGY = ("too_late", "outside_window", "earlier_part")  # nothing can be said, or something was


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Answer the conversation's open messages, or find that it has been done."""
    conversation_id = id_in(job, "conversation_id")
    with services.database.connection() as connection:
        found = parts.of_reply(connection, job.id)
    if not found:
        verdict = _draft(services, job, lease, conversation_id)
        if verdict is not None:
            return verdict
        services.checkpoint(Boundary.DRAFTED)
        with services.database.connection() as connection:
            found = parts.of_reply(connection, job.id)
        assert found, "a draft that was committed is there"
    verdict = reply.Sender(services.line, services.settings, services.checkpoint).deliver(lease, found)
    # What the model's answer shows was noted with the draft: sending one shows nothing of the model.
    return replace(verdict, shows_health=False) if isinstance(verdict, Complete) else verdict


def is_unsettled(connection: Conn, job: Job) -> bool:
    """Whether something of the reply may be with the employee and is still being looked up: then it is not buried."""
    return doubts.keep_alive(connection, job.id)


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Hold what may have left, mark what has not, ask for a person, and leave nobody in silence."""
    conversation_id = id_in(job, "conversation_id")
    may_have_arrived = failure.kind is FailureKind.AMBIGUOUS
    writes = [
        Write(COVER_BURIED, {"job_id": job.id, "conversation_id": conversation_id}),
        parts.give_up(
            job.id, reason=failure.text if may_have_arrived else failure.error_class, word=failure.error_class
        ),
        Write(FLAG_BURIED, {"job_id": job.id, "conversation_id": conversation_id, "reason": failure.error_class}),
    ]
    if not may_have_arrived and failure.error_class not in WITHOUT_APOLOGY:
        apology = {
            "line_id": uuid4(),
            "job_id": job.id,
            "conversation_id": conversation_id,
            "default_language": services.settings.default_language,
            "nl": words.line("apology", "nl"),
            "en": words.line("apology", "en"),
        }
        writes.append(Write(APOLOGISE, apology))
    return writes


def _draft(services: Services, job: Job, lease: Lease, conversation_id: UUID) -> Verdict | None:
    """Read what is open and save the answer to exactly that; a verdict when there is nothing to send from here."""
    with lease.transaction() as connection:
        found = thread.read(connection, job, conversation_id)
    services.checkpoint(Boundary.READ)
    language = decision.language_of(found, detect(found.text), services.settings.default_language)
    match decision.decide(found, services.settings):
        case Nothing(reason, is_settled):
            return _nothing(found, reason, is_settled)
        case Line(purpose, reason):
            return _line(lease, found, purpose, reason, language)
        case Question(text):
            with _Typing(services, job, found):
                drafted = make_answer(services, found, text, language)
            services.checkpoint(Boundary.ANSWERED)
            return _save(job, lease, found, drafted)
        case Suggestion():
            return suggest.beside_a_person(services, job, lease, found, language)


def _nothing(found: thread.Thread, reason: str | None, is_settled: bool) -> Verdict:
    if reason == "too_late":
        raise PermanentError("too_late", "the message is older than 24 hours: WhatsApp allows no free answer any more")
    writes: list[Write] = []
    if is_settled:
        writes.append(Write(NO_ANSWER_DUE, {"ids": [message.id for message in found.fresh]}))
    if reason == "manual":
        writes.append(Write(held_back.FLAG_WAITING, {"conversation_id": found.situation.id}))
    elif reason:
        writes.append(attention.flag(found.situation.id, reason))
    return Complete(writes, shows_health=False)


def _line(lease: Lease, found: thread.Thread, purpose: str, reason: str | None, language: Language) -> Verdict:
    """One of the small lines: a message and a send_message job of its own, unless a person has come before it."""
    line_id, conversation_id, covered = uuid4(), found.situation.id, [message.id for message in found.fresh]
    writes = [
        *parts.save(message_id=line_id, conversation_id=conversation_id, reply_id=line_id, source="system",
                    body=words.line(purpose, language), purpose=purpose, language=language),
        Write(reply.COVER, {"reply_id": line_id, "ids": covered}),
        enqueue_write({"type": "send_message", "message_id": str(line_id)}, conversation_id=conversation_id),
    ]  # fmt: skip
    if reason:
        writes.append(attention.flag(conversation_id, reason))
    with lease.transaction() as connection:
        still_open = connection.execute(STILL_OPEN, {"ids": covered}).rowcount
        if still_open == 0:
            return Complete(shows_health=False)
        if still_open < len(covered) or one(connection, IS_TAKEN_OVER, {"id": conversation_id}) is not None:
            return Continue()  # what is left is another matter
        for write in writes:
            connection.execute(write.sql, write.parameters)
    return Complete(shows_health=False)


def _save(job: Job, lease: Lease, found: thread.Thread, drafted: Drafted) -> Verdict | None:
    conversation_id, covered = found.situation.id, [message.id for message in found.fresh]
    with lease.transaction() as connection:
        still_open = connection.execute(STILL_OPEN, {"ids": covered}).rowcount
        if still_open == 0:
            # Somebody opted out meanwhile, or a person has answered.
            return Complete(shows_health=drafted.model is not None)
        if still_open < len(covered):
            return Continue()  # a person has answered a part: the rest is another question
        connection.execute(reply.COVER, {"reply_id": job.id, "ids": covered})
        drafts = parts.save(
            message_id=uuid4(), conversation_id=conversation_id, reply_id=job.id, source="ai",
            purpose=drafted.purpose, body=drafted.body, language=drafted.language,
            citations=drafted.citations, model=drafted.model, prompt_version=drafted.prompt_version,
            sources_hash=drafted.sources_hash, parameters=drafted.parameters,
        )  # fmt: skip
        for draft in drafts:
            connection.execute(draft.sql, draft.parameters)
        connection.execute(SET_LANGUAGE, {"language": drafted.language, "conversation_id": conversation_id})
        if drafted.reason:
            asked = attention.flag(conversation_id, drafted.reason)
            connection.execute(asked.sql, asked.parameters)
        if drafted.model is not None:  # without, only the search was asked
            note_answer(connection, job.type)
    return None


class _Typing:
    """Shows "typing…" beside the first model call: best effort, its thread has ended when the answer is there."""

    def __init__(self, services: Services, job: Job, found: thread.Thread) -> None:
        sid = next((m.provider_sid for m in reversed(found.fresh) if m.provider_sid), None)
        self._thread = None
        if services.settings.typing_indicator and sid and job.claims == 1:  # once a message, not at each retry
            self._thread = threading.Thread(target=services.line.typing, args=(sid,), name="typing", daemon=True)

    def __enter__(self) -> None:
        if self._thread:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._thread:
            self._thread.join(timeout=2)
