-- One reply, exactly once: the evidence for what was sent, parts, templates, and what must never happen to a message.

LOCK TABLE messages, suggestions IN ACCESS EXCLUSIVE MODE;  -- as in 0005

ALTER TABLE messages
    ADD COLUMN lookups_empty int NOT NULL DEFAULT 0,  -- in a row, since the present attempt
    ADD COLUMN last_lookup_at timestamptz,
    ADD COLUMN lookups_failing_since timestamptz,
    -- What showed that Twilio has it: its answer to the request, a callback, its list of messages, or a person.
    ADD COLUMN evidence text CHECK (evidence IN ('answer', 'callback', 'list', 'person')),
    ADD COLUMN second_sid text,  -- it went out twice: the other one
    ADD COLUMN template_sid text,  -- sent as this approved template, outside WhatsApp's 24 hours
    ADD COLUMN template_variables jsonb,
    ADD COLUMN parameters jsonb,  -- what the model was asked with, beside the prompt: temperature, seed
    -- Of the first attempt that may have left and was followed by another: evidence of it is looked for since then.
    ADD COLUMN in_doubt_since timestamptz,
    -- What a person wants should Twilio not have it; null: what AMBIGUOUS_SEND says.
    ADD COLUMN when_absent text CHECK (when_absent IN ('hold', 'resend')),
    ADD COLUMN retry_of uuid REFERENCES messages;  -- the message that was accepted and not delivered, which this one repeats
CREATE INDEX messages_retry_of ON messages (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX messages_second_sid ON messages (second_sid) WHERE second_sid IS NOT NULL;
-- The last message that Twilio is known to have, from our number: what its list must show before it is believed.
CREATE INDEX messages_confirmed ON messages (seq) WHERE from_self AND provider_sid IS NOT NULL;

-- The story of a message, for whoever asks later: what was tried, what was found, what settled it.
CREATE TABLE message_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid NOT NULL REFERENCES messages,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt int NOT NULL,
    what text NOT NULL CHECK (what IN (
        'intent', 'accepted', 'refused', 'not_sent', 'ambiguous',
        'lookup_found', 'lookup_empty', 'lookup_failed', 'lookup_foreign',
        'callback', 'second_sid', 'held', 'resend', 'retried', 'released', 'closed')),
    detail text  -- a status, a sid, a class of error: never a message's text
);
CREATE INDEX message_events_message ON message_events (message_id, id);

-- A message's states move along these arrows alone. What Twilio is known to have (a sid) never becomes a draft again and never
-- leaves a second time; its states then only move forward. A failed one without a sid may be tried again, or turn out to have left,
-- as may a draft that came back from an attempt.
CREATE TRIGGER messages_transition BEFORE UPDATE ON messages FOR EACH ROW
    WHEN (new.status <> old.status AND (
        old.provider_sid IS NOT NULL AND new.status IN ('draft', 'sending')
        OR NOT CASE old.status
            WHEN 'draft' THEN new.status IN ('sending', 'held', 'failed')
                OR old.send_attempt > 0 AND new.status IN ('sent', 'delivered', 'read')
            WHEN 'sending' THEN new.status IN ('draft', 'held', 'sent', 'delivered', 'read', 'failed')
            WHEN 'held' THEN new.status IN ('draft', 'sending', 'sent', 'delivered', 'read', 'failed')
            WHEN 'failed' THEN old.provider_sid IS NULL AND new.status IN ('draft', 'sending', 'sent', 'delivered', 'read')
            WHEN 'sent' THEN new.status IN ('delivered', 'read', 'failed')
            WHEN 'delivered' THEN new.status = 'read'
            ELSE false END))
    EXECUTE FUNCTION refuse_change('message', 'its status only moves forward, and what has left never leaves again');

-- Each request to Twilio is an attempt of its own: that is what fences a late answer to an earlier one.
CREATE TRIGGER messages_bookkeeping BEFORE UPDATE ON messages FOR EACH ROW
    WHEN (old.provider_sid <> coalesce(new.provider_sid, '')
        OR new.send_attempt < old.send_attempt
        OR old.status <> 'sending' AND new.status = 'sending' AND new.send_attempt <> old.send_attempt + 1)
    EXECUTE FUNCTION refuse_change('message', 'its sid stays, and each request to Twilio is counted');

-- What a message is stays as it was made; its text may change while it is a draft.
CREATE TRIGGER messages_as_made BEFORE UPDATE OF conversation_id, from_self, reply_id, part, body ON messages FOR EACH ROW
    WHEN (old.conversation_id <> new.conversation_id
        OR old.from_self <> new.from_self
        OR old.reply_id IS DISTINCT FROM new.reply_id
        OR old.part IS DISTINCT FROM new.part
        OR old.status <> 'draft' AND old.body <> new.body)
    EXECUTE FUNCTION refuse_change('message', 'its conversation, its place in a reply and its text stay');

-- A suggestion is decided on once.
CREATE TRIGGER suggestions_transition BEFORE UPDATE ON suggestions FOR EACH ROW
    WHEN (old.state <> 'open')
    EXECUTE FUNCTION refuse_change('suggestion', 'it has been decided on');

ALTER TABLE suggestions ADD COLUMN parameters jsonb;  -- as of a message

-- Lines of ours that have come since: a greeting to who begins, and what cannot be understood.
ALTER TABLE messages DROP CONSTRAINT messages_purpose_check, ADD CONSTRAINT messages_purpose_check CHECK (purpose IN (
    'message', 'answer', 'unanswered', 'apology', 'decline', 'limit', 'media', 'person', 'consent', 'welcome', 'unclear'));

-- Somebody has opted out: what waits to be sent to them is cancelled, but for one line, and nothing of theirs is open any more.
-- The caller has locked the conversation. What may have left already keeps its job, which has to find out; a draft that a worker
-- has just claimed is stopped by its intent.
CREATE FUNCTION cancel_unsent(p_conversation uuid, p_except uuid) RETURNS void LANGUAGE sql AS $$
    UPDATE ai_jobs j SET status = 'failed', closed_at = now(), closed_by = 'contact', closed_reason = 'opted_out',
        updated_at = now()
    WHERE j.conversation_id = p_conversation AND j.status = 'pending' AND j.type IN ('autoreply', 'send_message')
        AND (j.payload ->> 'message_id') IS DISTINCT FROM p_except::text
        AND NOT EXISTS (
            SELECT FROM messages m
            WHERE m.conversation_id = p_conversation AND m.from_self AND m.provider_sid IS NULL
                AND m.status IN ('sending', 'held') AND m.send_started_at IS NOT NULL
                AND (m.reply_id = j.id OR j.type = 'send_message' AND m.id = uuid_or_null(j.payload ->> 'message_id')));
    UPDATE messages SET status = 'failed', held_reason = 'opted_out'
    WHERE conversation_id = p_conversation AND from_self AND id IS DISTINCT FROM p_except
        AND (status = 'draft' OR status = 'held' AND send_started_at IS NULL AND provider_sid IS NULL);
    UPDATE messages SET answered_by = id
    WHERE conversation_id = p_conversation AND NOT from_self AND answered_by IS NULL;
$$;

-- As before, with two things more: STOP cancels what waits, and HELP (which Twilio has answered) asks for a person.
CREATE OR REPLACE FUNCTION store_inbound(
    p_sid text, p_address text, p_external_user_id text, p_profile_name text, p_body text, p_media jsonb, p_raw jsonb,
    p_consent text, p_consent_language text, p_default_language text, p_confirmed boolean, p_line_nl text, p_line_en text,
    p_message_id uuid, p_line_id uuid, p_settle float8, p_settle_at_most float8
) RETURNS TABLE (stored_id uuid, due_in float8) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    stopped uuid;
BEGIN
    WITH known AS MATERIALIZED (
        SELECT FROM messages WHERE provider_sid = p_sid
    ), conversation AS (
        INSERT INTO conversations AS c (address, external_user_id, profile_name, person_id, last_inbound_at,
            opted_out_at, consent_changed_at, needs_person_since, needs_person_reason)
        SELECT p_address, p_external_user_id, p_profile_name,
            (SELECT id FROM people WHERE phone = p_address AND (left_at IS NULL OR left_at > now())), now(),
            CASE WHEN p_consent = 'stop' THEN now() END, CASE WHEN p_consent = 'stop' THEN now() END,
            CASE WHEN p_consent = 'help' THEN now() END, CASE WHEN p_consent = 'help' THEN 'asked' END
        WHERE NOT EXISTS (SELECT FROM known)
        ON CONFLICT (address) DO UPDATE SET
            last_inbound_at = now(),
            external_user_id = coalesce(excluded.external_user_id, c.external_user_id),
            profile_name = coalesce(excluded.profile_name, c.profile_name),
            person_id = coalesce(excluded.person_id, c.person_id),  -- a number that moved is its new holder's
            opted_out_at = CASE p_consent WHEN 'stop' THEN coalesce(c.opted_out_at, now())
                WHEN 'start' THEN NULL ELSE c.opted_out_at END,
            consent_changed_at = CASE WHEN p_consent = 'stop' AND c.opted_out_at IS NULL
                OR p_consent = 'start' AND c.opted_out_at IS NOT NULL THEN now() ELSE c.consent_changed_at END,
            needs_person_since = CASE WHEN p_consent = 'help' THEN coalesce(c.needs_person_since, now())
                ELSE c.needs_person_since END,
            needs_person_reason = CASE WHEN p_consent = 'help' THEN 'asked' ELSE c.needs_person_reason END
        RETURNING id, opted_out_at, coalesce(consent_changed_at = now(), false) AS changed,
            coalesce(p_consent_language, language, (SELECT p.language FROM people p WHERE p.id = person_id),
                p_default_language) AS language
    ), message AS (
        INSERT INTO messages (id, conversation_id, from_self, source, body, media, raw, provider_sid, status, answered_by)
        SELECT p_message_id, id, false, 'contact', p_body, p_media, p_raw, p_sid, 'received',
            CASE WHEN changed AND NOT p_confirmed THEN p_line_id
                 WHEN changed OR opted_out_at IS NOT NULL OR p_confirmed THEN p_message_id END
        FROM conversation
        ON CONFLICT (provider_sid) DO NOTHING
        RETURNING id
    ), confirmation AS (
        INSERT INTO messages (id, conversation_id, from_self, source, purpose, body, status, reply_id, part, parts, language)
        SELECT p_line_id, c.id, true, 'system', 'consent',
            CASE c.language WHEN 'nl' THEN p_line_nl ELSE p_line_en END, 'draft', p_line_id, 1, 1, c.language
        FROM conversation c, message
        WHERE c.changed AND NOT p_confirmed
    ), job AS (
        INSERT INTO ai_jobs (payload, conversation_id, next_run_at)
        SELECT CASE WHEN c.changed THEN jsonb_build_object('type', 'send_message', 'message_id', p_line_id)
                ELSE jsonb_build_object('type', 'autoreply', 'conversation_id', c.id, 'message_id', p_message_id)
                END,
            c.id, now() + CASE WHEN c.changed THEN interval '0' ELSE make_interval(secs => p_settle) END
        FROM conversation c, message
        WHERE NOT p_confirmed AND (c.changed OR c.opted_out_at IS NULL)
        ON CONFLICT (conversation_id) WHERE type = 'autoreply' AND status IN ('pending', 'processing')
        DO UPDATE SET rerun = true, payload = excluded.payload, updated_at = now(),
            next_run_at = CASE WHEN ai_jobs.claims = 0
                THEN least(ai_jobs.run_started_at + make_interval(secs => p_settle_at_most), excluded.next_run_at)
                ELSE ai_jobs.next_run_at END
        RETURNING next_run_at
    )
    SELECT (SELECT id FROM message), (SELECT extract(epoch FROM next_run_at - now())::float8 FROM job),
        (SELECT c.id FROM conversation c, message WHERE c.changed AND c.opted_out_at IS NOT NULL)
    INTO stored_id, due_in, stopped;
    RETURN NEXT;
    IF stopped IS NOT NULL THEN
        PERFORM cancel_unsent(stopped, p_line_id);
    END IF;
END
$$;
