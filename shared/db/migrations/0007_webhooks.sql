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
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    source_id uuid REFERENCES webhook_sources,  -- null: an event of our own
    source_event_id text,
    type text NOT NULL,
    subject text,
    occurred_at timestamptz,
    data jsonb NOT NULL,
    raw bytea,  -- the bytes that were verified
    content_type text,
    held_reason text,  -- its generated text failed the check: a person decides
    received_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((source_id IS NULL) = (source_event_id IS NULL)),
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
    next_attempt_at timestamptz NOT NULL DEFAULT '-infinity',  -- the rate's next free moment
    failures_in_row int NOT NULL DEFAULT 0,
    open_until timestamptz,  -- the breaker: while set, one probe at a time, when it has passed
    disabled_at timestamptz,
    disabled_reason text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);

CREATE TABLE webhook_deliveries (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    event_id uuid NOT NULL REFERENCES webhook_events,
    endpoint_id uuid NOT NULL REFERENCES webhook_endpoints,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'dead', 'held')),
    replay_of uuid REFERENCES webhook_deliveries,  -- sent again to another endpoint
    tries int NOT NULL DEFAULT 0,  -- over all runs
    last_wait float8,  -- seconds, for decorrelated jitter
    delivered_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'delivered') = (delivered_at IS NOT NULL))
);
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_endpoint ON webhook_deliveries (endpoint_id, created_at);

CREATE TABLE webhook_attempts (
    delivery_id uuid NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE,
    try int NOT NULL,
    started timestamptz NOT NULL,
    duration_ms float8,
    ready_at timestamptz NOT NULL,  -- when the result was ready to go: latency counts from there
    http_status int,
    error_class text,
    error text,
    answer text,  -- shortened
    PRIMARY KEY (delivery_id, try)
);

INSERT INTO job_types (type, weight) VALUES ('deliver_event', 3);
