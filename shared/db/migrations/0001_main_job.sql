-- The tables of the main job: people, conversations, messages, the queue, and the documents that answers come from.
-- Runs on Postgres 16 to 18 with pgvector; `migrate` has made sure of the extension before.

CREATE TABLE people (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    phone text NOT NULL UNIQUE CHECK (phone ~ '^\+[1-9][0-9]{6,14}$'),  -- E.164
    name text NOT NULL,
    language text CHECK (language IN ('nl', 'en')),
    department text,
    attributes jsonb NOT NULL DEFAULT '{}',
    external_id text,
    left_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE conversations (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    address text NOT NULL UNIQUE,  -- as Twilio sent it, less "whatsapp:": a phone number or WhatsApp's own user id
    external_user_id text,
    person_id uuid REFERENCES people,
    profile_name text,
    mode text NOT NULL DEFAULT 'auto' CHECK (mode IN ('auto', 'manual')),
    language text CHECK (language IN ('nl', 'en')),
    last_inbound_at timestamptz,
    opted_out_at timestamptz,
    consent_changed_at timestamptz,  -- the moment of the last STOP or START that changed something
    needs_person_since timestamptz,
    needs_person_reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((needs_person_since IS NULL) = (needs_person_reason IS NULL))
);
CREATE INDEX conversations_needs_person ON conversations (needs_person_since) WHERE needs_person_since IS NOT NULL;

CREATE TABLE messages (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    conversation_id uuid NOT NULL REFERENCES conversations,
    from_self boolean NOT NULL,
    source text NOT NULL CHECK (source IN ('contact', 'ai', 'admin', 'system')),
    -- What a line is for: some count for limits, and a consent line may go to somebody who has opted out.
    purpose text NOT NULL DEFAULT 'message'
        CHECK (purpose IN ('message', 'answer', 'unanswered', 'apology', 'decline', 'limit', 'media', 'person', 'consent')),
    body text NOT NULL,
    media jsonb NOT NULL DEFAULT '[]',
    raw jsonb,
    provider_sid text UNIQUE,
    prompted_by uuid,  -- inbound: the job that last read it for a draft
    answered_by uuid,  -- inbound: the reply that answers it; its own id when no answer is due; null while it is open
    reply_id uuid,
    part int,
    parts int,
    status text NOT NULL
        CHECK (status IN ('received', 'draft', 'held', 'sending', 'sent', 'delivered', 'read', 'failed')),
    held_reason text,
    send_attempt int NOT NULL DEFAULT 0,
    send_started_at timestamptz,
    error_code text,
    citations jsonb NOT NULL DEFAULT '[]',
    language text CHECK (language IN ('nl', 'en')),
    model text,
    prompt_version text,
    sources_hash text,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (reply_id, part),
    CHECK (from_self = (source <> 'contact')),
    CHECK (from_self = (status <> 'received')),
    CHECK (from_self = (reply_id IS NOT NULL AND part IS NOT NULL AND parts IS NOT NULL)),
    CHECK (part BETWEEN 1 AND parts),
    CHECK (NOT from_self OR answered_by IS NULL),
    CHECK (status <> 'held' OR held_reason IS NOT NULL),
    CHECK (status <> 'sending' OR send_started_at IS NOT NULL)
);
CREATE INDEX messages_thread ON messages (conversation_id, seq);
CREATE INDEX messages_open ON messages (conversation_id, seq) WHERE NOT from_self AND answered_by IS NULL;
CREATE INDEX messages_answered_by ON messages (answered_by) WHERE answered_by IS NOT NULL;
CREATE UNIQUE INDEX messages_one_sending ON messages (conversation_id) WHERE status = 'sending';

CREATE TABLE ai_jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'processing', 'done', 'failed')),
    payload jsonb NOT NULL,
    type text NOT NULL GENERATED ALWAYS AS (payload ->> 'type') STORED,
    conversation_id uuid REFERENCES conversations,
    attempts int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts int NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
    claims int NOT NULL DEFAULT 0,  -- in this run, snoozes and continuations included
    next_run_at timestamptz NOT NULL DEFAULT now(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    lease_token uuid,
    lease_until timestamptz,
    claimed_at timestamptz,
    last_error text,
    error_class text,
    rerun boolean NOT NULL DEFAULT false,
    run int NOT NULL DEFAULT 1,
    run_started_at timestamptz NOT NULL DEFAULT now(),
    closed_at timestamptz,
    closed_by text,
    closed_reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((status = 'processing') = (lease_token IS NOT NULL)),
    CHECK ((lease_token IS NULL) = (lease_until IS NULL)),
    CHECK ((closed_at IS NULL) = (closed_by IS NULL)),
    CHECK (closed_at IS NULL OR status = 'failed')
) WITH (fillfactor = 70);
-- With the type first, a backlog of one type costs the claim of the others nothing.
CREATE INDEX ai_jobs_due ON ai_jobs (type, next_run_at, seq) WHERE status = 'pending';
CREATE INDEX ai_jobs_processing ON ai_jobs (id) WHERE status = 'processing';
CREATE INDEX ai_jobs_conversation ON ai_jobs (conversation_id, seq);
CREATE INDEX ai_jobs_dead ON ai_jobs (updated_at) WHERE status = 'failed' AND closed_at IS NULL;
-- One conversation, one active autoreply: joining, order and mutual exclusion in one.
CREATE UNIQUE INDEX ai_jobs_one_autoreply ON ai_jobs (conversation_id)
    WHERE type = 'autoreply' AND status IN ('pending', 'processing');

CREATE VIEW dead_letters AS SELECT * FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL;

CREATE TABLE job_attempts (
    job_id uuid NOT NULL REFERENCES ai_jobs ON DELETE CASCADE,
    run int NOT NULL,
    claim int NOT NULL,
    started timestamptz NOT NULL,
    ended timestamptz NOT NULL DEFAULT now(),
    outcome text NOT NULL
        CHECK (outcome IN ('done', 'retry', 'continued', 'snoozed', 'returned', 'failed', 'crashed')),
    error_class text,
    http_status int,
    error text,
    PRIMARY KEY (job_id, run, claim)
);

CREATE TABLE job_types (
    type text PRIMARY KEY,
    weight int NOT NULL DEFAULT 1 CHECK (weight > 0),  -- its share of the slots when others wait too
    failures_in_row int NOT NULL DEFAULT 0,
    resting_until timestamptz,  -- while set, one probe at a time is claimed, when it has passed
    resting_reason text,
    CHECK ((resting_until IS NULL) = (resting_reason IS NULL))
);
INSERT INTO job_types (type, weight) VALUES ('autoreply', 4), ('send_message', 4), ('embed_record', 1);

-- Takes due jobs of the given types (null: all in job_types), oldest due first within a type; between types by weight, so
-- that a backlog of one never makes another wait for more than a slot. A type that rests gives one job, once its
-- rest has passed, and rests another ten seconds: whoever moves `resting_until` first has the probe.
-- The inner select is MATERIALIZED so that the planner cannot run it twice and claim more than was asked for.
CREATE FUNCTION claim_ai_jobs(batch_size int, types text[] DEFAULT NULL, lease interval DEFAULT '30 seconds')
RETURNS SETOF ai_jobs LANGUAGE sql VOLATILE AS $$
    WITH probed AS MATERIALIZED (
        UPDATE job_types SET resting_until = now() + interval '10 seconds'
        WHERE resting_until <= now() AND (types IS NULL OR type = ANY (types))
            AND EXISTS (SELECT FROM ai_jobs j
                        WHERE j.type = job_types.type AND j.status = 'pending' AND j.next_run_at <= now())
        RETURNING type
    ), wanted AS MATERIALIZED (
        SELECT t.type, t.weight,
            CASE WHEN p.type IS NOT NULL THEN 1 WHEN t.resting_until IS NOT NULL THEN 0 ELSE batch_size END AS room
        FROM job_types t LEFT JOIN probed p USING (type)
        WHERE types IS NULL OR t.type = ANY (types)
    ), due AS MATERIALIZED (
        SELECT placed.id
        FROM (
            SELECT candidate.id, candidate.next_run_at, candidate.seq, w.weight,
                row_number() OVER (PARTITION BY w.type ORDER BY candidate.next_run_at, candidate.seq) AS place
            FROM wanted w CROSS JOIN LATERAL (
                SELECT j.id, j.next_run_at, j.seq FROM ai_jobs j
                WHERE j.type = w.type AND j.status = 'pending' AND j.next_run_at <= now()
                ORDER BY j.next_run_at, j.seq
                LIMIT w.room
                FOR UPDATE SKIP LOCKED
            ) candidate
        ) placed
        ORDER BY placed.place::float8 / placed.weight, placed.next_run_at, placed.seq
        LIMIT batch_size
    )
    UPDATE ai_jobs SET status = 'processing', attempts = attempts + 1, claims = claims + 1,
        lease_token = gen_random_uuid(), lease_until = now() + lease, claimed_at = now(), updated_at = now()
    WHERE id IN (SELECT id FROM due)
    RETURNING *
$$;

-- The webhook's one statement: a message, its conversation and its job are stored together, or nothing is. The job joins the
-- conversation's active autoreply, if there is one: ON CONFLICT DO UPDATE takes that row's lock, so a claim passes it by while
-- this transaction is open, and a completion waits for it and then sees `rerun`. It is a function for one reason: its plan is
-- kept by the session, and planning it anew costs twice as much as running it (docs/decisions/0006).
CREATE FUNCTION store_inbound(
    p_sid text, p_address text, p_external_user_id text, p_profile_name text, p_body text, p_media jsonb, p_raw jsonb,
    p_consent text, p_consent_language text, p_default_language text, p_confirmed boolean, p_line_nl text, p_line_en text,
    p_message_id uuid, p_line_id uuid, p_settle float8, p_settle_at_most float8
) RETURNS TABLE (stored_id uuid, due_in float8) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN

    RETURN QUERY WITH known AS MATERIALIZED (
        SELECT FROM messages WHERE provider_sid = p_sid
    ), conversation AS (
        INSERT INTO conversations AS c (address, external_user_id, profile_name, person_id, last_inbound_at,
            opted_out_at, consent_changed_at)
        SELECT p_address, p_external_user_id, p_profile_name,
            (SELECT id FROM people WHERE phone = p_address AND (left_at IS NULL OR left_at > now())), now(),
            CASE WHEN p_consent = 'stop' THEN now() END, CASE WHEN p_consent = 'stop' THEN now() END
        WHERE NOT EXISTS (SELECT FROM known)
        ON CONFLICT (address) DO UPDATE SET
            last_inbound_at = now(),
            external_user_id = coalesce(excluded.external_user_id, c.external_user_id),
            profile_name = coalesce(excluded.profile_name, c.profile_name),
            person_id = coalesce(excluded.person_id, c.person_id),  -- a number that moved is its new holder's
            opted_out_at = CASE p_consent WHEN 'stop' THEN coalesce(c.opted_out_at, now())
                WHEN 'start' THEN NULL ELSE c.opted_out_at END,
            consent_changed_at = CASE WHEN p_consent = 'stop' AND c.opted_out_at IS NULL
                OR p_consent = 'start' AND c.opted_out_at IS NOT NULL THEN now() ELSE c.consent_changed_at END
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
    ), closed AS (
        UPDATE messages m SET answered_by = m.id
        -- A subquery, so that the kept plan asks for one conversation and never scans what is open in all of them.
        WHERE m.conversation_id = (SELECT c.id FROM conversation c, message WHERE c.changed AND c.opted_out_at IS NOT NULL)
            AND NOT m.from_self AND m.answered_by IS NULL
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
    SELECT (SELECT id FROM message), (SELECT extract(epoch FROM next_run_at - now())::float8 FROM job);
END
$$;

CREATE TABLE documents (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    title text NOT NULL,
    content text NOT NULL,
    content_sha256 bytea NOT NULL,
    language text NOT NULL CHECK (language IN ('nl', 'en')),
    collection text NOT NULL DEFAULT '',
    source_name text NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'ready', 'failed')),
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (collection, source_name)
);

CREATE TABLE chunks (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    document_id uuid REFERENCES documents ON DELETE CASCADE,
    person_id uuid REFERENCES people ON DELETE CASCADE,  -- null: for everybody
    ordinal int NOT NULL,
    heading_path text[] NOT NULL DEFAULT '{}',
    text text NOT NULL,
    search_text text NOT NULL,  -- the heading path and the text: what is embedded and what full text looks at
    language text NOT NULL CHECK (language IN ('nl', 'en')),
    tsv tsvector NOT NULL GENERATED ALWAYS AS (
        CASE language WHEN 'nl' THEN to_tsvector('pg_catalog.dutch', search_text)
                      ELSE to_tsvector('pg_catalog.english', search_text) END
    ) STORED,
    content_sha256 bytea NOT NULL,
    embedding halfvec(1536) NOT NULL,
    embedding_model text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (document_id, ordinal),
    CHECK ((document_id IS NULL) <> (person_id IS NULL))
);
CREATE INDEX chunks_tsv ON chunks USING gin (tsv);
CREATE INDEX chunks_person ON chunks (person_id) WHERE person_id IS NOT NULL;
