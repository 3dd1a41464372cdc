-- The webhook gateway: what comes in from AI vendors, where it goes, and what became of it.
-- Secrets are AES-GCM under SECRETS_KEY (shared/secrets.py); nobody reads them back but the code that signs and verifies.

CREATE TABLE webhook_sources (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    scheme text NOT NULL CHECK (scheme IN ('standard', 't-v1', 'x-hub')),
    signature_header text,  -- t-v1 alone: another one than X-Webhook-Signature
    -- Where the sender's id is: header:NAME, pointer:/PATH into the verified body, body-sha256; by default the usual headers.
    id_from text NOT NULL DEFAULT 'header',
    tolerance_seconds int NOT NULL DEFAULT 300 CHECK (tolerance_seconds BETWEEN 1 AND 86400),
    size_limit int NOT NULL DEFAULT 1048576 CHECK (size_limit BETWEEN 1 AND 10485760),  -- bytes
    normaliser text NOT NULL DEFAULT 'openai' CHECK (normaliser IN ('openai', 'json')),
    paths jsonb NOT NULL DEFAULT '{}',  -- json: field of the event → JSON pointer
    secret bytea NOT NULL,
    previous_secret bytea,
    previous_until timestamptz,
    disabled_at timestamptz,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK (signature_header IS NULL OR scheme = 't-v1')
);

CREATE TABLE webhook_events (
    id uuid PRIMARY KEY,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    source_id uuid REFERENCES webhook_sources,  -- null: an event of our own
    source_event_id text,
    type text NOT NULL CHECK (type <> ''),
    subject text,
    occurred_at timestamptz,
    data jsonb NOT NULL,
    raw bytea,  -- the bytes that were verified
    content_type text,
    body bytea,  -- what is delivered, the same bytes for ever; an event of our own gets it with its first attempt
    held_reason text,  -- its generated text failed the check: a person decides
    received_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((source_id IS NULL) = (source_event_id IS NULL)),
    CHECK (source_id IS NULL OR raw IS NOT NULL AND body IS NOT NULL),
    UNIQUE (source_id, source_event_id)
);
CREATE INDEX webhook_events_newest ON webhook_events (seq);

-- The receive store: who has an id's work in hand, and what was answered. Kept for 72 hours at least.
CREATE TABLE webhook_receipts (
    source_id uuid NOT NULL REFERENCES webhook_sources,
    key text NOT NULL,  -- the sender's id
    state text NOT NULL CHECK (state IN ('processing', 'completed')),
    body_sha256 bytea NOT NULL,
    idempotency_key text,
    owner uuid,
    locked_until timestamptz,
    status int,  -- what was answered
    event_id uuid REFERENCES webhook_events,
    completed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source_id, key),
    CHECK ((state = 'processing') = (owner IS NOT NULL)),
    CHECK ((owner IS NULL) = (locked_until IS NULL)),
    CHECK ((state = 'completed') = (completed_at IS NOT NULL)),
    CHECK ((state = 'completed') = (status IS NOT NULL)),
    CHECK ((state = 'completed') = (event_id IS NOT NULL))
);
CREATE INDEX webhook_receipts_completed ON webhook_receipts (completed_at) WHERE state = 'completed';

CREATE TABLE webhook_endpoints (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    url text NOT NULL,
    events text[] NOT NULL DEFAULT '{}',  -- types that it wants, a trailing * for a prefix; empty: all that come from sources
    secret bytea NOT NULL,
    previous_secret bytea,
    previous_until timestamptz,
    signature_header text NOT NULL DEFAULT 'X-Webhook-Signature',
    headers bytea,  -- extra headers, encrypted: some carry a token
    schedule text NOT NULL DEFAULT 'table' CHECK (schedule IN ('table', 'decorrelated')),
    rate float8 CHECK (rate > 0),  -- attempts a second over all instances
    concurrency int NOT NULL DEFAULT 4 CHECK (concurrency BETWEEN 1 AND 64),
    timeout_seconds float8 NOT NULL DEFAULT 15 CHECK (timeout_seconds BETWEEN 0.1 AND 50),
    -- What is known of it, kept by admission (shared/webhooks/admission.py).
    promised_until timestamptz NOT NULL DEFAULT '-infinity',  -- the moments up to here are promised to waiting deliveries
    paced_at timestamptz NOT NULL DEFAULT '-infinity',  -- by its rate, what has gone out used the time up to here
    average_ms float8,  -- of its last answers
    failures_in_row int NOT NULL DEFAULT 0,
    open_until timestamptz,  -- the breaker: while set, one probe at a time, from then on
    disabled_at timestamptz,
    disabled_reason text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);

CREATE TABLE webhook_deliveries (
    id uuid PRIMARY KEY,
    event_id uuid NOT NULL REFERENCES webhook_events,
    endpoint_id uuid NOT NULL REFERENCES webhook_endpoints,
    job_id uuid,  -- null while it is held for a person; finished jobs are forgotten before it is
    state text NOT NULL CHECK (state IN ('waiting', 'delivered', 'dead', 'held', 'rejected')),
    replay_of uuid REFERENCES webhook_deliveries ON DELETE SET NULL,  -- sent again by a person, to this endpoint or another
    replay_id uuid REFERENCES replays,
    tries int NOT NULL DEFAULT 0,  -- over all runs
    promised_at timestamptz,  -- its moment, if it had to wait for the rate
    last_wait float8,  -- seconds, for decorrelated jitter
    delivered_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'delivered') = (delivered_at IS NOT NULL)),
    CHECK (state IN ('held', 'rejected') OR job_id IS NOT NULL)
);
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_endpoint ON webhook_deliveries (endpoint_id, created_at);
CREATE INDEX webhook_deliveries_replay_of ON webhook_deliveries (replay_of) WHERE replay_of IS NOT NULL;

-- Begun before the request leaves, so that a crash is seen. One that has no end and is past its time was interrupted.
CREATE TABLE webhook_attempts (
    delivery_id uuid NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE,
    try int NOT NULL,
    endpoint_id uuid NOT NULL REFERENCES webhook_endpoints,
    run int NOT NULL,  -- of the job
    is_probe boolean NOT NULL DEFAULT false,  -- the breaker was open
    started timestamptz NOT NULL,
    gives_up_at timestamptz NOT NULL,  -- then it holds no place of its endpoint's concurrency any more
    ended timestamptz,
    duration_ms float8,
    outcome text CHECK (outcome IN ('delivered', 'failed', 'interrupted')),
    http_status int,
    error_class text,
    error text,
    answer text,  -- shortened
    PRIMARY KEY (delivery_id, try),
    CHECK ((ended IS NULL) = (outcome IS NULL))
);
CREATE INDEX webhook_attempts_open ON webhook_attempts (endpoint_id) WHERE ended IS NULL;
CREATE INDEX webhook_attempts_ended ON webhook_attempts (ended) WHERE ended IS NOT NULL;

INSERT INTO job_types (type, weight) VALUES ('deliver_event', 3);

ALTER TABLE replays ADD COLUMN to_endpoint uuid REFERENCES webhook_endpoints;  -- deliveries go to this one instead

-- Whether an endpoint asks for a type: by name, by a prefix and *, or for all that comes from sources when it names none.
CREATE FUNCTION wants_event(wanted text[], event_type text, is_own boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT cardinality(wanted) = 0 AND NOT is_own
        OR event_type = ANY (wanted)
        OR EXISTS (SELECT FROM unnest(wanted) w WHERE w LIKE '%*' AND starts_with(event_type, left(w, -1)))
$$;

-- One delivery and one job for each endpoint that asks for an event, in the transaction that stored it; how many. A held event's
-- deliveries have no job until a person releases them.
CREATE FUNCTION fan_out_event(new_event uuid) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    made int;
BEGIN
    WITH wanting AS MATERIALIZED (
        SELECT n.id AS endpoint_id, gen_random_uuid() AS delivery_id, e.held_reason IS NULL AS goes,
            CASE WHEN e.held_reason IS NULL THEN gen_random_uuid() END AS job_id
        FROM webhook_events e JOIN webhook_endpoints n ON wants_event(n.events, e.type, e.source_id IS NULL)
        WHERE e.id = new_event AND n.disabled_at IS NULL
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state)
        SELECT delivery_id, new_event, endpoint_id, job_id, CASE WHEN goes THEN 'waiting' ELSE 'held' END FROM wanting
    ), job AS (
        INSERT INTO ai_jobs (id, payload, max_attempts)
        SELECT job_id, jsonb_build_object('type', 'deliver_event', 'delivery_id', delivery_id), 8 FROM wanting WHERE goes
    )
    SELECT count(*) INTO made FROM wanting WHERE goes;
    RETURN made;
END
$$;

-- Events of our own, told to whoever asks for them: recorded where the state changes, so that no way of flagging is forgotten. They
-- hold ids and a reason, no text; when nobody asks, nothing is written.
CREATE FUNCTION record_own_event(event_type text, event_subject text, event_data jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    new_event uuid := gen_random_uuid();
BEGIN
    IF EXISTS (SELECT FROM webhook_endpoints n WHERE n.disabled_at IS NULL AND wants_event(n.events, event_type, true)) THEN
        INSERT INTO webhook_events (id, type, subject, occurred_at, data)
        VALUES (new_event, event_type, event_subject, clock_timestamp(), event_data);
        PERFORM fan_out_event(new_event);
    END IF;
END
$$;

CREATE FUNCTION tell_needs_person() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM record_own_event('conversation.needs_person', new.id::text, jsonb_build_object(
        'conversation_id', new.id, 'reason', new.needs_person_reason));
    RETURN NULL;
END
$$;
CREATE TRIGGER conversations_needs_person AFTER UPDATE ON conversations FOR EACH ROW
    WHEN (new.needs_person_since IS NOT NULL AND old.needs_person_since IS DISTINCT FROM new.needs_person_since)
    EXECUTE FUNCTION tell_needs_person();
CREATE TRIGGER conversations_born_needs_person AFTER INSERT ON conversations FOR EACH ROW
    WHEN (new.needs_person_since IS NOT NULL)
    EXECUTE FUNCTION tell_needs_person();

-- What died telling that something died is told to nobody: it would never end.
CREATE FUNCTION tell_job_failed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.type = 'deliver_event' AND EXISTS (
        SELECT FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
        WHERE d.id = uuid_or_null(new.payload ->> 'delivery_id') AND e.type = 'job.failed' AND e.source_id IS NULL)
    THEN
        RETURN NULL;
    END IF;
    PERFORM record_own_event('job.failed', new.id::text, jsonb_build_object(
        'job_id', new.id, 'job_type', new.type, 'conversation_id', new.conversation_id, 'reason', new.error_class));
    RETURN NULL;
END
$$;
CREATE TRIGGER ai_jobs_failed AFTER UPDATE ON ai_jobs FOR EACH ROW
    WHEN (old.status = 'processing' AND new.status = 'failed')
    EXECUTE FUNCTION tell_job_failed();
