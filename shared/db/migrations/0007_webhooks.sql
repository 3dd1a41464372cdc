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
    held_reason text,  -- its generated text failed the check: a person decides; it stays when that is done
    decision text CHECK (decision IN ('released', 'rejected')),  -- the person's
    received_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((source_id IS NULL) = (source_event_id IS NULL)),
    CHECK (source_id IS NULL OR raw IS NOT NULL AND body IS NOT NULL),
    CHECK (decision IS NULL OR held_reason IS NOT NULL),
    UNIQUE (source_id, source_event_id)
);
CREATE INDEX webhook_events_newest ON webhook_events (seq);
CREATE INDEX webhook_events_type ON webhook_events (type, seq);
CREATE INDEX webhook_events_told_dead ON webhook_events ((data ->> 'endpoint_id'), (data ->> 'reason'), received_at)
    WHERE type = 'job.failed' AND source_id IS NULL;  -- tell_job_failed()
CREATE INDEX webhook_events_held ON webhook_events (seq) WHERE held_reason IS NOT NULL AND decision IS NULL;

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
    event_id uuid,  -- no reference: an event may be forgotten sooner
    completed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source_id, key),
    CHECK ((state = 'processing') = (owner IS NOT NULL)),
    CHECK ((owner IS NULL) = (locked_until IS NULL)),
    CHECK ((state = 'completed') = (completed_at IS NOT NULL)),
    CHECK ((state = 'completed') = (status IS NOT NULL)),
    CHECK ((state = 'completed') = (event_id IS NOT NULL))
);
CREATE INDEX webhook_receipts_completed ON webhook_receipts (source_id, completed_at) WHERE state = 'completed';
CREATE INDEX webhook_receipts_locked ON webhook_receipts (locked_until) WHERE state = 'processing';

-- The first transaction of a receipt: `taken`, `running` (somebody else has it for `locked_for` more seconds), `completed`, or
-- `conflict` (what was completed had another body or idempotency key). Asking twice as the same owner is asking once. Whoever
-- takes over what was taken and left brings its own body and key: nothing was stored of the other's. It is not flushed to disk:
-- what a crash of the server takes back here was not stored yet, and the owner then finds that it has lost it.
CREATE FUNCTION take_receipt(
    for_source uuid, for_key text, body_hash bytea, with_idempotency_key text, new_owner uuid, lock_for interval,
    OUT outcome text, OUT answered int, OUT event uuid, OUT locked_for float8
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known webhook_receipts;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    LOOP
        INSERT INTO webhook_receipts AS r (source_id, key, state, body_sha256, idempotency_key, owner, locked_until)
        VALUES (for_source, for_key, 'processing', body_hash, with_idempotency_key, new_owner, clock_timestamp() + lock_for)
        ON CONFLICT (source_id, key) DO UPDATE SET owner = new_owner, locked_until = clock_timestamp() + lock_for,
            body_sha256 = body_hash, idempotency_key = with_idempotency_key
        WHERE r.state = 'processing' AND (r.locked_until <= clock_timestamp() OR r.owner = new_owner);
        IF FOUND THEN
            outcome := 'taken';
            RETURN;
        END IF;
        SELECT * INTO known FROM webhook_receipts r WHERE r.source_id = for_source AND r.key = for_key;
        EXIT WHEN FOUND;  -- or it has been released meanwhile
    END LOOP;
    answered := known.status;
    event := known.event_id;
    locked_for := extract(epoch FROM known.locked_until - clock_timestamp());
    outcome := CASE
        WHEN known.state = 'processing' THEN 'running'
        WHEN known.body_sha256 <> body_hash OR coalesce(known.idempotency_key <> with_idempotency_key, false) THEN 'conflict'
        ELSE 'completed'
    END;
END
$$;

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
    header_names text[] NOT NULL DEFAULT '{}',  -- theirs, to be shown without the key
    schedule text NOT NULL DEFAULT 'table' CHECK (schedule IN ('table', 'decorrelated')),
    rate float8 CHECK (rate > 0),  -- attempts a second over all instances
    concurrency int NOT NULL DEFAULT 4 CHECK (concurrency BETWEEN 1 AND 64),
    timeout_seconds float8 NOT NULL DEFAULT 15 CHECK (timeout_seconds BETWEEN 0.1 AND 50),
    -- What is known of it, kept by admission (shared/webhooks/admission.py).
    promised_until timestamptz NOT NULL DEFAULT '-infinity',  -- the moments up to here are promised to waiting deliveries
    paced_at timestamptz NOT NULL DEFAULT '-infinity',  -- by its rate, the moments before this one are given
    sent_until timestamptz NOT NULL DEFAULT '-infinity',  -- and what has really gone out used the time up to here
    average_ms float8,  -- of its last answers
    failures_in_row int NOT NULL DEFAULT 0,
    open_until timestamptz,  -- the breaker: while set, one probe at a time, from then on
    pulled_until timestamptz,  -- what waits was pulled forward up to here, and there is more: admission goes on from then
    disabled_at timestamptz,
    disabled_reason text,
    version int NOT NULL DEFAULT 1,  -- of what a person sets: a change says which one it has seen
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK ((headers IS NULL) = (cardinality(header_names) = 0)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);

CREATE TABLE webhook_deliveries (
    id uuid PRIMARY KEY,
    event_id uuid NOT NULL REFERENCES webhook_events,
    endpoint_id uuid NOT NULL REFERENCES webhook_endpoints,
    job_id uuid,  -- null while it is held for a person; finished jobs are forgotten before it is
    -- replayed: it was dead, and one of its own went to another endpoint; closed: a person decided that it need not go any more
    state text NOT NULL CHECK (state IN ('waiting', 'delivered', 'dead', 'held', 'rejected', 'replayed', 'closed')),
    replay_of uuid REFERENCES webhook_deliveries ON DELETE SET NULL,  -- sent again by a person, to this endpoint or another
    replay_id uuid REFERENCES replays,
    tries int NOT NULL DEFAULT 0,  -- over all runs
    promised_at timestamptz,  -- its moment, if it had to wait for the rate
    waits_until timestamptz,  -- parked, for the breaker, a free place or a moment: its place in line; pull_waiting() gets it
    last_wait float8,  -- seconds, for decorrelated jitter
    delivered_at timestamptz,
    -- Kept by note_delivery_end for the figures (shared/webhooks/figures.py), which would else read every event.
    died_at timestamptz,  -- the last time
    latency_seconds float8,  -- from the event's receipt to delivered_at, of what went by itself
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'delivered') = (delivered_at IS NOT NULL)),
    CHECK (state IN ('held', 'rejected') OR job_id IS NOT NULL)
);
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_endpoint ON webhook_deliveries (endpoint_id, created_at);
CREATE INDEX webhook_deliveries_parked ON webhook_deliveries (endpoint_id, waits_until) WHERE waits_until IS NOT NULL;
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (state, endpoint_id) WHERE state IN ('waiting', 'dead', 'held');
CREATE INDEX webhook_deliveries_delivered ON webhook_deliveries (delivered_at) INCLUDE (endpoint_id, latency_seconds)
    WHERE latency_seconds IS NOT NULL;
CREATE INDEX webhook_deliveries_died ON webhook_deliveries (died_at) INCLUDE (endpoint_id) WHERE died_at IS NOT NULL;
CREATE INDEX webhook_deliveries_replay_of ON webhook_deliveries (replay_of) WHERE replay_of IS NOT NULL;

-- Begun before the request leaves, so that a crash is seen. One that has no end and is past its time was interrupted.
CREATE TABLE webhook_attempts (
    delivery_id uuid NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE,
    try int NOT NULL,
    endpoint_id uuid NOT NULL,  -- its delivery's, so no reference of its own
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
CREATE INDEX webhook_attempts_ended ON webhook_attempts (ended) INCLUDE (endpoint_id, try, outcome) WHERE ended IS NOT NULL;

-- What a person released, or had sent again, measures the person: it has no latency. What has ended waits for nothing.
CREATE FUNCTION note_delivery_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.waits_until := NULL;
    new.promised_at := NULL;
    IF new.state = 'dead' THEN
        new.died_at := clock_timestamp();
    ELSIF new.state = 'delivered' AND new.died_at IS NULL AND new.replay_of IS NULL THEN
        SELECT extract(epoch FROM new.delivered_at - e.received_at) INTO new.latency_seconds
        FROM webhook_events e WHERE e.id = new.event_id AND e.held_reason IS NULL;
    END IF;
    RETURN new;
END
$$;
CREATE TRIGGER webhook_deliveries_end BEFORE UPDATE ON webhook_deliveries FOR EACH ROW
    WHEN (new.state IN ('delivered', 'dead', 'replayed', 'closed') AND old.state IS DISTINCT FROM new.state)
    EXECUTE FUNCTION note_delivery_end();

INSERT INTO job_types (type, weight) VALUES ('deliver_event', 3);

ALTER TABLE replays ADD COLUMN to_endpoint uuid REFERENCES webhook_endpoints;  -- deliveries go to this one instead
ALTER TABLE replays ADD COLUMN not_deliveries int NOT NULL DEFAULT 0;  -- so they could not go there: still dead letters

-- As before, and by the endpoint that a delivery went to.
CREATE OR REPLACE FUNCTION dead_letters_matching(filter jsonb, as_of timestamptz) RETURNS SETOF ai_jobs
LANGUAGE sql STABLE AS $$
    SELECT j.* FROM ai_jobs j
    WHERE j.status = 'failed' AND j.closed_at IS NULL AND j.updated_at <= as_of
        AND (filter ->> 'type' IS NULL OR j.type = filter ->> 'type')
        AND (filter ->> 'class' IS NULL OR j.error_class = filter ->> 'class')
        AND (filter ->> 'error' IS NULL OR strpos(lower(j.last_error), lower(filter ->> 'error')) > 0)
        AND (filter ->> 'phone' IS NULL
            OR j.conversation_id = (SELECT c.id FROM conversations c WHERE c.address = filter ->> 'phone'))
        AND (filter ->> 'since' IS NULL OR j.updated_at >= (filter ->> 'since')::timestamptz)
        AND (filter ->> 'until' IS NULL OR j.updated_at < (filter ->> 'until')::timestamptz)
        AND (filter ->> 'older_than' IS NULL
            OR j.updated_at <= as_of - make_interval(secs => (filter ->> 'older_than')::float8))
        AND (filter ->> 'endpoint' IS NULL
            OR (SELECT d.endpoint_id FROM webhook_deliveries d WHERE d.id = uuid_or_null(j.payload ->> 'delivery_id'))
                = (SELECT n.id FROM webhook_endpoints n WHERE n.name = filter ->> 'endpoint'))
$$;

-- Dead deliveries go to another endpoint: for each a delivery and a job of its own, due so many seconds from now, in the order
-- given; the dead letter is closed with who and why. What is no dead delivery any more is not among the answers.
CREATE FUNCTION send_elsewhere(
    dead_jobs uuid[], slots float8[], to_endpoint uuid, by_replay uuid, who text, reason text
) RETURNS TABLE (dead_job uuid, new_delivery uuid, new_job uuid) LANGUAGE sql VOLATILE AS $$
    WITH dead AS MATERIALIZED (
        SELECT j.id AS dead_job, d.id AS delivery_id, d.event_id, taken.slot, gen_random_uuid() AS new_delivery,
            gen_random_uuid() AS new_job
        FROM unnest(dead_jobs, slots) AS taken (id, slot) JOIN ai_jobs j ON j.id = taken.id
        JOIN webhook_deliveries d ON d.id = uuid_or_null(j.payload ->> 'delivery_id')
        WHERE j.type = 'deliver_event' AND j.status = 'failed' AND j.closed_at IS NULL
        ORDER BY j.id FOR NO KEY UPDATE OF j
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, replay_of, replay_id)
        SELECT new_delivery, event_id, to_endpoint, new_job, 'waiting', delivery_id, by_replay FROM dead
    ), job AS (
        INSERT INTO ai_jobs (id, payload, max_attempts, next_run_at, replay_id)
        SELECT new_job, jsonb_build_object('type', 'deliver_event', 'delivery_id', new_delivery), 8,
            now() + make_interval(secs => slot), by_replay
        FROM dead ORDER BY slot
    ), replayed AS (
        UPDATE webhook_deliveries d SET state = 'replayed' FROM dead WHERE d.id = dead.delivery_id AND d.state = 'dead'
    ), closed AS (
        UPDATE ai_jobs j SET closed_at = now(), closed_by = who, updated_at = now(),
            closed_reason = 'replayed to ' || (SELECT n.name FROM webhook_endpoints n WHERE n.id = to_endpoint) || ': ' || reason
        FROM dead WHERE j.id = dead.dead_job
    )
    SELECT dead_job, new_delivery, new_job FROM dead ORDER BY slot
$$;

-- Whether an endpoint asks for a type: by name, by a prefix and *, or for all that comes from sources when it names none, or a *
-- alone. Events of our own go to those who name them or how they begin: who passes on what vendors send never meant these.
CREATE FUNCTION wants_event(wanted text[], event_type text, is_own boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT cardinality(wanted) = 0 AND NOT is_own
        OR event_type = ANY (wanted)
        OR EXISTS (
            SELECT FROM unnest(wanted) w
            WHERE w LIKE '%*' AND starts_with(event_type, left(w, -1)) AND NOT (is_own AND w = '*'))
$$;

-- One delivery and one job for each endpoint that asks for an event, in the transaction that stored it; how many. A held event's
-- deliveries have no job until a person releases them. An event that an endpoint of ours has sent back to a source of ours goes
-- nowhere: it has been where it is wanted, and would go round for ever, as another event each time.
CREATE FUNCTION fan_out_event(new_event uuid) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    made int;
BEGIN
    WITH wanting AS MATERIALIZED (
        SELECT n.id AS endpoint_id, gen_random_uuid() AS delivery_id, e.held_reason IS NULL AS goes,
            CASE WHEN e.held_reason IS NULL THEN gen_random_uuid() END AS job_id
        FROM webhook_events e JOIN webhook_endpoints n ON wants_event(n.events, e.type, e.source_id IS NULL)
        WHERE e.id = new_event AND n.disabled_at IS NULL AND NOT EXISTS (
            SELECT FROM webhook_events o
            WHERE o.id = CASE WHEN e.source_event_id ~ '^evt_[0-9a-f]{32}$' THEN substr(e.source_event_id, 5)::uuid END)
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

-- The second transaction of a receipt: the event, its deliveries and jobs, and the receipt completed, or none of it: `stored`;
-- `known` (its receipt was forgotten, the event was not); `conflict` (the same, with another body); `lost` (another owner has it).
CREATE FUNCTION complete_receipt(
    for_source uuid, for_key text, by_owner uuid, answer int, new_event uuid, event_type text, event_subject text,
    event_time timestamptz, event_data jsonb, raw_body bytea, media_type text, event_body bytea, why_held text,
    OUT outcome text, OUT event uuid, OUT jobs int
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    receipt webhook_receipts;
    known_raw bytea;
BEGIN
    jobs := 0;
    SELECT * INTO receipt FROM webhook_receipts r WHERE r.source_id = for_source AND r.key = for_key FOR UPDATE;
    IF receipt.state = 'completed' AND receipt.event_id = new_event THEN  -- the answer to an earlier commit was lost
        outcome := 'stored';
        event := new_event;
        SELECT count(*) INTO jobs FROM webhook_deliveries d WHERE d.event_id = new_event AND d.state = 'waiting';
        RETURN;
    END IF;
    IF receipt.owner IS DISTINCT FROM by_owner THEN
        outcome := 'lost';
        RETURN;
    END IF;
    INSERT INTO webhook_events (id, source_id, source_event_id, type, subject, occurred_at, data, raw, content_type, body,
        held_reason)
    VALUES (new_event, for_source, for_key, event_type, event_subject, event_time, event_data, raw_body, media_type, event_body,
        why_held)
    ON CONFLICT (source_id, source_event_id) DO NOTHING;
    IF FOUND THEN
        outcome := 'stored';
        event := new_event;
        jobs := fan_out_event(new_event);
    ELSE
        SELECT e.id, e.raw INTO event, known_raw FROM webhook_events e
        WHERE e.source_id = for_source AND e.source_event_id = for_key;
        IF known_raw IS DISTINCT FROM raw_body THEN
            outcome := 'conflict';
            DELETE FROM webhook_receipts r WHERE r.source_id = for_source AND r.key = for_key;
            RETURN;
        END IF;
        outcome := 'known';
    END IF;
    UPDATE webhook_receipts r SET state = 'completed', owner = NULL, locked_until = NULL, status = answer, event_id = event,
        completed_at = now()
    WHERE r.source_id = for_source AND r.key = for_key;
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

-- What died telling that something died is told to nobody: it would never end. Neither is it when it came back through a source,
-- from another gateway that has made an event of its own of it: all that is left of ours in that are its data.
-- Thousands of deliveries die together, of an endpoint that is disabled or away for days: of one endpoint and one reason ten an
-- hour are told, and a few more when many die at the same moment. Whoever is told finds the rest among the dead letters.
CREATE FUNCTION tell_job_failed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    told_in_an_hour CONSTANT int := 10;
    is_echo boolean;
    of_endpoint uuid;
    facts jsonb := jsonb_build_object(
        'job_id', new.id, 'job_type', new.type, 'conversation_id', new.conversation_id, 'reason', new.error_class);
BEGIN
    IF new.type = 'deliver_event' THEN
        SELECT e.type = 'job.failed' AND e.source_id IS NULL OR position('"job_type":"deliver_event"'::bytea IN e.raw) > 0,
            d.endpoint_id
        INTO is_echo, of_endpoint
        FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
        WHERE d.id = uuid_or_null(new.payload ->> 'delivery_id');
        IF is_echo OR (SELECT count(*) FROM (
            SELECT FROM webhook_events t WHERE t.type = 'job.failed' AND t.source_id IS NULL
                AND t.data ->> 'endpoint_id' = of_endpoint::text AND t.data ->> 'reason' = new.error_class
                AND t.received_at > now() - interval '1 hour'
            ORDER BY t.received_at LIMIT told_in_an_hour) AS told) >= told_in_an_hour  -- ordered as its own index is
        THEN
            RETURN NULL;
        END IF;
        facts := facts || jsonb_build_object('endpoint_id', of_endpoint);
    END IF;
    PERFORM record_own_event('job.failed', new.id::text, facts);
    RETURN NULL;
END
$$;
CREATE TRIGGER ai_jobs_failed AFTER UPDATE ON ai_jobs FOR EACH ROW
    WHEN (old.status = 'processing' AND new.status = 'failed')
    EXECUTE FUNCTION tell_job_failed();

-- Deliveries that are parked before an endpoint, pulled forward: the next 200, or what its rate lets go in six hours, spread at its
-- pace; of an endpoint whose answers are too slow for its rate, what goes in two seconds, since that is only a guess. The caller
-- holds the endpoint's row; what somebody else holds stays as it is. While `pulled_until` stays set there are more, and admission
-- calls again when the last of these goes.
CREATE FUNCTION pull_waiting(of_endpoint uuid) RETURNS int LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    e webhook_endpoints;
    begins timestamptz := clock_timestamp();
    pace float8;
    at_most int := 200;
    is_busy boolean;  -- so its answers' times say what it can take, which is less than its rate if they are long
    looked_at int;
    pulled int;
BEGIN
    SELECT * INTO e FROM webhook_endpoints n WHERE n.id = of_endpoint FOR NO KEY UPDATE;
    pace := greatest(coalesce(e.average_ms, 100) / 1000 / e.concurrency, 0.001);
    IF e.rate IS NOT NULL THEN
        is_busy := EXISTS (
            SELECT FROM webhook_attempts t WHERE t.endpoint_id = e.id AND t.ended IS NULL AND t.gives_up_at > begins);
        pace := greatest(1 / e.rate, CASE WHEN is_busy THEN pace END, 0.001);
        at_most := greatest(least(at_most, 21600 * e.rate, CASE WHEN pace > 1 / e.rate THEN 2 / pace END), 1);
        begins := greatest(begins, e.paced_at);
    END IF;
    WITH parked AS MATERIALIZED (
        SELECT d.id, d.job_id, d.waits_until FROM webhook_deliveries d
        WHERE d.endpoint_id = of_endpoint AND d.waits_until IS NOT NULL
        ORDER BY d.waits_until LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED
    ), due AS MATERIALIZED (
        SELECT p.id, p.job_id, p.waits_until FROM parked p JOIN ai_jobs j ON j.id = p.job_id
        WHERE j.status = 'pending' FOR NO KEY UPDATE OF j SKIP LOCKED
    ), placed AS MATERIALIZED (
        SELECT u.id, u.job_id,
            begins + make_interval(secs => pace * (row_number() OVER (ORDER BY u.waits_until) - 1)) AS moment
        FROM due u
    ), moved AS (
        UPDATE ai_jobs j SET next_run_at = p.moment FROM placed p WHERE j.id = p.job_id
    ), marked AS (
        UPDATE webhook_deliveries d SET waits_until = NULL,
            promised_at = CASE WHEN e.rate IS NOT NULL THEN p.moment END
        FROM placed p WHERE d.id = p.id
    )
    SELECT (SELECT count(*) FROM parked), (SELECT count(*) FROM placed) INTO looked_at, pulled;
    UPDATE webhook_endpoints n SET promised_until = '-infinity',
        paced_at = CASE WHEN e.rate IS NULL OR pulled = 0 THEN n.paced_at ELSE begins + make_interval(secs => pace * pulled) END,
        pulled_until = CASE WHEN looked_at = at_most OR pulled < looked_at
            THEN begins + make_interval(secs => pace * greatest(pulled - 1, 0)) END
    WHERE n.id = of_endpoint;
    RETURN pulled;
END
$$;

-- What is due for an endpoint whose rate has no room, parked without being asked: all that this finds of it among the next 500 that
-- a worker would claim, in line from `begins` on, `gap` apart. Thousands that fall due together would else be claimed and put back
-- one by one, before whoever has a moment and before everybody else. Nobody's moment is taken, but for one that was missed by more
-- than `grace`. Each comes by itself a little behind its place in line, should nobody pull it forward. The caller holds the
-- endpoint's row.
CREATE FUNCTION park_due(of_endpoint uuid, begins timestamptz, gap interval, grace interval) RETURNS int
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    parked int;
BEGIN
    WITH head AS MATERIALIZED (
        SELECT j.id, j.next_run_at, j.seq, uuid_or_null(j.payload ->> 'delivery_id') AS delivery FROM ai_jobs j
        WHERE j.type = 'deliver_event' AND j.status = 'pending' AND j.next_run_at <= moment
        ORDER BY j.next_run_at, j.seq LIMIT 500
    ), looked_at AS MATERIALIZED (
        -- Whose they are is no condition here: the planner would begin with all that wait.
        SELECT h.*, d.endpoint_id = of_endpoint AND d.state = 'waiting'
            AND (d.promised_at IS NULL OR d.promised_at < moment - grace) AS is_ours
        FROM head h JOIN webhook_deliveries d ON d.id = h.delivery
    ), held AS MATERIALIZED (
        SELECT o.id, o.next_run_at, o.seq, o.delivery
        FROM looked_at o JOIN ai_jobs j ON j.id = o.id JOIN webhook_deliveries d ON d.id = o.delivery
        WHERE o.is_ours AND j.status = 'pending' AND j.next_run_at = o.next_run_at
        FOR NO KEY UPDATE OF j, d SKIP LOCKED
    ), placed AS MATERIALIZED (
        SELECT l.id, l.delivery, CASE WHEN l.place > moment + interval '6 hours'
            THEN moment + interval '3 hours' * (1 + random()) ELSE l.place END AS place
        FROM (SELECT h.id, h.delivery, begins + gap * (row_number() OVER (ORDER BY h.next_run_at, h.seq) - 1) AS place
              FROM held h) l
    ), moved AS (
        UPDATE ai_jobs j SET next_run_at = least(p.place + interval '30 seconds', moment + interval '6 hours')
        FROM placed p WHERE j.id = p.id
    ), marked AS (
        UPDATE webhook_deliveries d SET waits_until = p.place, promised_at = NULL FROM placed p WHERE d.id = p.delivery
    )
    SELECT count(*) INTO parked FROM placed;
    RETURN parked;
END
$$;

-- What waits for a disabled endpoint (for one, or for any) is due soon, 200 a second, so that it dies where people see it and does
-- not look for hours as if it might still go; how many. What is due within the minute is left, and what somebody holds: the chore
-- comes again (shared/webhooks/endpoints.py).
CREATE FUNCTION hasten_disabled(of_endpoint uuid, at_most int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    hastened int;
BEGIN
    WITH waiting AS MATERIALIZED (
        SELECT j.id, j.next_run_at, j.seq
        FROM webhook_endpoints n JOIN webhook_deliveries d ON d.endpoint_id = n.id JOIN ai_jobs j ON j.id = d.job_id
        WHERE n.disabled_at IS NOT NULL AND (of_endpoint IS NULL OR n.id = of_endpoint) AND d.state = 'waiting'
            AND j.status = 'pending' AND j.next_run_at > clock_timestamp() + interval '1 minute'
        LIMIT at_most FOR NO KEY UPDATE OF j SKIP LOCKED
    ), placed AS MATERIALIZED (
        SELECT w.id, clock_timestamp()
            + make_interval(secs => 0.005 * (row_number() OVER (ORDER BY w.next_run_at, w.seq) - 1)) AS moment
        FROM waiting w
    )
    UPDATE ai_jobs j SET next_run_at = p.moment FROM placed p WHERE j.id = p.id;
    GET DIAGNOSTICS hastened = ROW_COUNT;
    RETURN hastened;
END
$$;

-- However it was disabled, by a person or by its 410.
CREATE FUNCTION hasten_what_waits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hasten_disabled(new.id, 1000);
    RETURN NULL;
END
$$;
CREATE TRIGGER webhook_endpoints_disabled AFTER UPDATE ON webhook_endpoints FOR EACH ROW
    WHEN (old.disabled_at IS NULL AND new.disabled_at IS NOT NULL)
    EXECUTE FUNCTION hasten_what_waits();

-- May a delivery go now? Fenced by its job's lease; the locks are taken in the order job, endpoint, delivery. `verdict` is
--   send: the attempt `try` has begun, and all that it needs is here
--   wait: not now but in `wait_seconds`; `reason` is breaker, concurrency or rate
--   done: it has arrived, or a person has decided that it does not go
--   dead: a worker has recorded its last failure and then stopped: `error_class`, `error` and `http_status` are of that
--   disabled: so is its endpoint, for `reason`
--   lost: the job is no longer this worker's            missing: there is no such delivery
-- Waiting costs no attempt. Whoever must wait is promised a moment of its own, so that thousands who wait are claimed about
-- twice each, and nobody asks over and over:
--   breaker: each 10 s one of those that wait comes by. The first that finds `open_until` past is the probe, alone until its
--     attempt has ended, or until it would have given up, so that one whose process was killed keeps nobody waiting for ever.
--   concurrency: those that wait come by at the pace at which places get free: by the last answers, or by the one that is out for
--     longest, if that is worse. With a rate, what else is due is parked, as below.
--   rate: each moment is given once, and 1/rate apart. Who comes within `grace` of its own moment goes; who comes later goes if the
--     rate has room by what has really gone out, or else waits anew: so in any T seconds at most rate × (T + grace) + 1 go, whatever
--     has piled up, and a moment that its delivery missed is another's. Some 200 moments are given ahead, and none that is more
--     than six hours away, which its delivery might not live to see. The others are parked in line behind them, with all that is
--     due for the endpoint (park_due), and pulled forward when those have gone.
-- It is not flushed to disk: what a crash of the server takes back is an attempt of which nothing is known, as if it were cut off.
CREATE FUNCTION admit_delivery(
    of_job uuid, token uuid, delivery uuid,
    OUT verdict text, OUT wait_seconds float8, OUT reason text, OUT try int, OUT endpoint uuid, OUT url text, OUT secret bytea,
    OUT previous_secret bytea, OUT signature_header text, OUT headers bytea, OUT timeout_seconds float8, OUT schedule text,
    OUT last_wait float8, OUT event uuid, OUT body bytea, OUT replay text, OUT replay_attempt int,
    OUT original_timestamp bigint, OUT error_class text, OUT error text, OUT http_status int
) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    moved_by CONSTANT interval := '10 seconds';
    parked_at_most CONSTANT interval := '6 hours';  -- what waits is looked at sometimes, whatever happens
    j record;
    e webhook_endpoints;
    d webhook_deliveries;
    a webhook_attempts;
    v webhook_events;
    moment timestamptz;
    waits timestamptz;
    line timestamptz;  -- the end of what is parked
    place timestamptz;  -- in it
    gap interval;
    grace interval;
    is_on_time boolean;
    parked int;
    in_flight int := 0;
    longest interval;
    probes boolean := false;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT q.run, q.attempts, q.replay_id, q.seq INTO j FROM ai_jobs q
    WHERE q.id = of_job AND q.lease_token = token AND q.status = 'processing' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        verdict := 'lost';
        RETURN;
    END IF;
    SELECT n.* INTO e FROM webhook_endpoints n
    WHERE n.id = (SELECT o.endpoint_id FROM webhook_deliveries o WHERE o.id = delivery) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        verdict := 'missing';
        RETURN;
    END IF;
    SELECT o.* INTO d FROM webhook_deliveries o WHERE o.id = delivery FOR NO KEY UPDATE;
    IF d.state NOT IN ('waiting', 'dead') THEN
        verdict := 'done';
        RETURN;
    END IF;
    moment := clock_timestamp();
    SELECT t.* INTO a FROM webhook_attempts t WHERE t.delivery_id = delivery ORDER BY t.try DESC LIMIT 1;
    IF a.try IS NOT NULL AND a.ended IS NULL THEN  -- whoever began it has no lease any more
        UPDATE webhook_attempts t SET ended = moment, outcome = 'interrupted', error_class = 'interrupted',
            error = 'its process stopped in the middle'
        WHERE t.delivery_id = delivery AND t.try = a.try;
        UPDATE webhook_deliveries o SET tries = a.try WHERE o.id = delivery;
    END IF;
    IF d.state = 'dead' AND a.run = j.run AND a.outcome = 'failed' THEN
        verdict := 'dead';
        error_class := a.error_class;
        error := a.error;
        http_status := a.http_status;
        RETURN;
    END IF;
    IF e.disabled_at IS NOT NULL THEN
        verdict := 'disabled';
        reason := e.disabled_reason;
        RETURN;
    END IF;

    grace := make_interval(secs => greatest(0.5, least(1 / e.rate, 5)));
    SELECT count(*), max(moment - t.started), coalesce(bool_or(t.is_probe), false) INTO in_flight, longest, probes
    FROM webhook_attempts t WHERE t.endpoint_id = e.id AND t.ended IS NULL AND t.gives_up_at > moment;
    IF e.open_until IS NOT NULL THEN
        IF probes OR moment < e.open_until THEN
            reason := 'breaker';
            waits := greatest(e.promised_until + moved_by, e.open_until, CASE WHEN probes THEN moment + moved_by END);
        END IF;
        probes := true;
    ELSE
        probes := false;
        IF in_flight >= e.concurrency THEN
            reason := 'concurrency';
            waits := greatest(e.promised_until, moment) + greatest(
                make_interval(secs => coalesce(e.average_ms, 100) / 1000), longest, '20 milliseconds') / e.concurrency;
            IF e.rate IS NOT NULL THEN  -- what else is due would be told the same, one by one
                gap := make_interval(secs => greatest(1 / e.rate, coalesce(e.average_ms, 100) / 1000 / e.concurrency));
                SELECT greatest(waits, e.paced_at, max(o.waits_until)) INTO line FROM webhook_deliveries o
                WHERE o.endpoint_id = e.id AND o.waits_until IS NOT NULL;
                IF park_due(e.id, line + gap, gap, grace) > 0 THEN
                    UPDATE webhook_endpoints n SET pulled_until = coalesce(n.pulled_until, moment) WHERE n.id = e.id;
                END IF;
            END IF;
        ELSIF in_flight = 0 AND e.promised_until > moment + interval '5 seconds'  -- it is faster than it was
            OR e.pulled_until <= moment + interval '1 second'
        THEN
            PERFORM pull_waiting(e.id);
            SELECT n.* INTO e FROM webhook_endpoints n WHERE n.id = e.id;
        END IF;
    END IF;
    IF waits > moment + parked_at_most THEN
        waits := moment + parked_at_most / 2 * (1 + random());
    ELSIF waits IS NOT NULL THEN
        UPDATE webhook_endpoints n SET promised_until = waits WHERE n.id = e.id;
    END IF;
    IF waits IS NULL AND e.rate IS NOT NULL THEN
        gap := make_interval(secs => 1 / e.rate);
        is_on_time := coalesce(d.promised_at >= moment - grace, false);
        IF is_on_time AND d.promised_at > moment THEN
            waits := d.promised_at;
        ELSIF e.sent_until <= moment + (CASE WHEN is_on_time THEN grace ELSE interval '0' END) THEN
            UPDATE webhook_endpoints n SET sent_until = greatest(e.sent_until, moment) + gap,
                paced_at = CASE WHEN is_on_time THEN e.paced_at ELSE greatest(e.paced_at, moment + gap) END
            WHERE n.id = e.id;
        ELSE
            waits := greatest(e.paced_at, e.sent_until);
            line := greatest(waits, gap + (
                SELECT max(o.waits_until) FROM webhook_deliveries o WHERE o.endpoint_id = e.id AND o.waits_until IS NOT NULL));
            parked := park_due(e.id, line + gap, gap, grace);
            IF waits <= moment + make_interval(secs => least(greatest(200 / e.rate, 2), 21600))
                AND (e.pulled_until <= moment + interval '1 second') IS NOT FALSE
            THEN
                d.promised_at := waits;
                UPDATE webhook_endpoints n SET paced_at = waits + gap WHERE n.id = e.id;
                IF parked > 0 THEN
                    PERFORM pull_waiting(e.id);
                END IF;
            ELSE
                d.promised_at := NULL;
                -- Whoever was claimed beside the one that parked the others, or missed its moment, is older than the first in line.
                SELECT f.waits_until - interval '1 microsecond' INTO place FROM (
                    SELECT o.job_id, o.waits_until FROM webhook_deliveries o
                    WHERE o.endpoint_id = e.id AND o.waits_until IS NOT NULL AND o.id <> delivery
                    ORDER BY o.waits_until LIMIT 50) f JOIN ai_jobs q ON q.id = f.job_id
                WHERE q.seq > j.seq ORDER BY f.waits_until LIMIT 1;
                place := coalesce(place, CASE WHEN line > moment + parked_at_most
                    THEN moment + parked_at_most / 2 * (1 + random()) ELSE line END);
                waits := least(greatest(place, waits) + interval '30 seconds', moment + parked_at_most);
                UPDATE webhook_endpoints n SET pulled_until = coalesce(n.pulled_until, n.paced_at - gap) WHERE n.id = e.id;
            END IF;
        END IF;
        reason := CASE WHEN waits IS NOT NULL THEN 'rate' END;
    END IF;
    IF waits IS NOT NULL THEN
        verdict := 'wait';
        wait_seconds := extract(epoch FROM waits - moment);
        UPDATE webhook_deliveries o SET state = 'waiting', promised_at = d.promised_at,
            waits_until = CASE WHEN reason <> 'rate' OR d.promised_at IS NULL THEN coalesce(place, waits) END
        WHERE o.id = delivery;
        RETURN;
    END IF;

    verdict := 'send';
    try := coalesce(a.try, 0) + 1;
    INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, is_probe, started, gives_up_at)
    VALUES (delivery, try, e.id, j.run, probes, moment, moment + make_interval(secs => e.timeout_seconds + 5));
    IF d.state <> 'waiting' OR d.promised_at IS NOT NULL OR d.waits_until IS NOT NULL THEN
        UPDATE webhook_deliveries o SET state = 'waiting', promised_at = NULL, waits_until = NULL WHERE o.id = delivery;
    END IF;
    endpoint := e.id;
    url := e.url;
    secret := e.secret;
    previous_secret := CASE WHEN e.previous_until > moment THEN e.previous_secret END;
    signature_header := e.signature_header;
    headers := e.headers;
    timeout_seconds := e.timeout_seconds;
    schedule := e.schedule;
    last_wait := d.last_wait;
    SELECT w.* INTO v FROM webhook_events w WHERE w.id = d.event_id;
    event := v.id;
    body := v.body;
    IF j.run > 1 OR d.replay_of IS NOT NULL THEN
        replay := coalesce(j.replay_id, d.replay_id)::text;
        replay := coalesce(replay, of_job::text || '.' || j.run);
        replay_attempt := j.attempts;
        original_timestamp := extract(epoch FROM coalesce((
            WITH RECURSIVE origin AS (
                SELECT d.id, d.replay_of
                UNION SELECT o.id, o.replay_of FROM origin r JOIN webhook_deliveries o ON o.id = r.replay_of
            )
            SELECT min(t.started) FROM origin r JOIN webhook_attempts t ON t.delivery_id = r.id AND t.try = 1
        ), v.received_at))::bigint;
    END IF;
END
$$;

-- What became of an attempt, fenced by its job's lease: null when that is lost, else what changed of its endpoint by it, `opened`
-- or `closed` (the breaker), `disabled` or `nothing`. The endpoint's row is written only when
-- something of it changes: a failure; the first success after one, which closes the breaker and pulls forward what waits; and a
-- sample of its answers' times. `final`: the delivery is dead, which its job says in the next transaction; `gone`: so is the endpoint.
-- Not flushed either: the job's own commit comes behind it, and does that.
CREATE FUNCTION settle_attempt(
    of_job uuid, token uuid, delivery uuid, of_try int, accepted boolean, status int, took_ms float8, class text, said text,
    answered text, next_wait float8, final boolean, gone boolean
) RETURNS text LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    a webhook_attempts;
    e webhook_endpoints;
    moment timestamptz;
    change text := 'nothing';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM ai_jobs q WHERE q.id = of_job AND q.lease_token = token AND q.status = 'processing' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT t.* INTO a FROM webhook_attempts t WHERE t.delivery_id = delivery AND t.try = of_try AND t.ended IS NULL;
    IF NOT FOUND THEN  -- the answer to an earlier commit was lost
        RETURN change;
    END IF;
    SELECT n.* INTO e FROM webhook_endpoints n WHERE n.id = a.endpoint_id;
    IF NOT accepted OR e.failures_in_row > 0 OR e.open_until IS NOT NULL THEN
        SELECT n.* INTO e FROM webhook_endpoints n WHERE n.id = a.endpoint_id FOR NO KEY UPDATE;
        moment := clock_timestamp();
        IF accepted THEN
            UPDATE webhook_endpoints n SET failures_in_row = 0, open_until = NULL WHERE n.id = e.id;
            IF e.open_until IS NOT NULL THEN
                change := 'closed';
                PERFORM pull_waiting(e.id);
            END IF;
        ELSE
            change := CASE WHEN gone AND e.disabled_at IS NULL THEN 'disabled'
                WHEN e.open_until IS NULL AND e.failures_in_row + 1 >= 5 THEN 'opened' ELSE change END;
            UPDATE webhook_endpoints n SET
                failures_in_row = e.failures_in_row + CASE WHEN e.open_until IS NULL OR a.is_probe THEN 1 ELSE 0 END,
                open_until = CASE
                    WHEN e.open_until IS NULL AND e.failures_in_row + 1 >= 5 THEN moment + interval '10 seconds'
                    WHEN e.open_until IS NOT NULL AND a.is_probe
                        THEN moment + make_interval(secs => least(300, 10 * 2.0 ^ least(e.failures_in_row - 4, 10)))
                    ELSE e.open_until END,
                -- The first that has to wait for the probe's moment is promised just that.
                promised_until = CASE WHEN e.open_until IS NULL AND e.failures_in_row + 1 >= 5
                    THEN moment ELSE e.promised_until END,
                disabled_at = CASE WHEN gone THEN coalesce(e.disabled_at, moment) ELSE e.disabled_at END,
                disabled_reason = CASE WHEN gone THEN coalesce(e.disabled_reason, 'gone') ELSE e.disabled_reason END
            WHERE n.id = e.id;
        END IF;
    ELSIF e.average_ms IS NULL OR random() < 0.05 THEN
        UPDATE webhook_endpoints n SET average_ms = coalesce(0.8 * n.average_ms + 0.2 * took_ms, took_ms) WHERE n.id = e.id;
    END IF;
    moment := clock_timestamp();
    UPDATE webhook_attempts t SET ended = moment, duration_ms = took_ms,
        outcome = CASE WHEN accepted THEN 'delivered' ELSE 'failed' END,
        http_status = status, error_class = class, error = said, answer = answered
    WHERE t.delivery_id = delivery AND t.try = of_try;
    UPDATE webhook_deliveries o SET tries = of_try, last_wait = coalesce(next_wait, o.last_wait),
        state = CASE WHEN accepted THEN 'delivered' WHEN final THEN 'dead' ELSE 'waiting' END,
        delivered_at = CASE WHEN accepted THEN moment END
    WHERE o.id = delivery;
    RETURN change;
END
$$;

-- As admit_delivery(), for all that a worker has just claimed: the plain ones among them, whose first attempt nothing stands in the
-- way of. Who is not in the answer asks for itself: a retry or a replay, an endpoint that is open, disabled, full or has a rate,
-- and whatever is locked at this moment. Nothing here waits for a lock, so the order in which they are taken does not matter.
-- What is in flight is counted by a statement that begins when the endpoints are locked.
CREATE FUNCTION admit_deliveries(of_jobs uuid[], tokens uuid[], deliveries uuid[])
RETURNS TABLE (token uuid, endpoint uuid, url text, secret bytea, previous_secret bytea, signature_header text, headers bytea,
    timeout_seconds float8, schedule text, event uuid, body bytea) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    of_endpoints uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT array_agg(l.id) INTO of_endpoints FROM (
        SELECT n.id FROM webhook_endpoints n
        WHERE n.id IN (SELECT d.endpoint_id FROM unnest(deliveries) AS given (id) JOIN webhook_deliveries d ON d.id = given.id)
            AND n.disabled_at IS NULL AND n.open_until IS NULL AND n.rate IS NULL AND n.pulled_until IS NULL
            AND n.promised_until <= moment
        FOR NO KEY UPDATE SKIP LOCKED) l;
    RETURN QUERY WITH asking AS MATERIALIZED (
        -- What makes one plain is no condition here: the planner would begin with all that wait.
        SELECT d.id, d.endpoint_id, d.event_id, q.run, given.token, given.place,
            q.run = 1 AND d.state = 'waiting' AND d.tries = 0 AND d.replay_of IS NULL AND d.promised_at IS NULL
                AND d.waits_until IS NULL AS is_plain
        FROM unnest(of_jobs, tokens, deliveries) WITH ORDINALITY AS given (job, token, delivery, place)
        JOIN ai_jobs q ON q.id = given.job JOIN webhook_deliveries d ON d.id = given.delivery
        WHERE q.lease_token = given.token AND q.status = 'processing'
        FOR NO KEY UPDATE OF q, d SKIP LOCKED
    ), room AS MATERIALIZED (
        SELECT n.id, n.timeout_seconds, n.concurrency - (
            SELECT count(*) FROM webhook_attempts t
            WHERE t.endpoint_id = n.id AND t.ended IS NULL AND t.gives_up_at > moment) AS free
        FROM webhook_endpoints n WHERE n.id = ANY (of_endpoints)
    ), admitted AS MATERIALIZED (
        SELECT p.*, r.timeout_seconds FROM (
            SELECT a.*, row_number() OVER (PARTITION BY a.endpoint_id ORDER BY a.place) AS beside FROM asking a
            WHERE a.is_plain AND NOT EXISTS (SELECT FROM webhook_attempts t WHERE t.delivery_id = a.id)
        ) p JOIN room r ON r.id = p.endpoint_id AND p.beside <= r.free
    ), begun AS (
        INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at)
        SELECT a.id, 1, a.endpoint_id, a.run, moment, moment + make_interval(secs => a.timeout_seconds + 5) FROM admitted a
        RETURNING delivery_id
    )
    SELECT a.token, n.id, n.url, n.secret, CASE WHEN n.previous_until > moment THEN n.previous_secret END, n.signature_header,
        n.headers, n.timeout_seconds, n.schedule, v.id, v.body
    FROM begun b JOIN admitted a ON a.id = b.delivery_id
    JOIN webhook_endpoints n ON n.id = a.endpoint_id JOIN webhook_events v ON v.id = a.event_id;
END
$$;

-- As settle_attempt(), for all that came back together and was accepted by an endpoint that is well. Who is not in the answer is
-- settled by itself. Nothing here waits for a lock either: a worker's whole turn would.
CREATE FUNCTION settle_accepted(
    of_jobs uuid[], tokens uuid[], deliveries uuid[], of_tries int[], statuses int[], took_ms float8[], answers text[]
) RETURNS TABLE (token uuid) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY WITH held AS MATERIALIZED (
        SELECT given.* FROM unnest(of_jobs, tokens, deliveries, of_tries, statuses, took_ms, answers)
            AS given (job, token, delivery, try, status, took, answer)
        JOIN ai_jobs q ON q.id = given.job JOIN webhook_deliveries d ON d.id = given.delivery
        WHERE q.lease_token = given.token AND q.status = 'processing'
        FOR NO KEY UPDATE OF q, d SKIP LOCKED
    ), accepted AS MATERIALIZED (
        SELECT t.*, n.average_ms IS NULL OR random() < 0.05 AS is_sample
        FROM (SELECT h.*, t.endpoint_id AS endpoint, t.ended FROM held h
              JOIN webhook_attempts t ON t.delivery_id = h.delivery AND t.try = h.try OFFSET 0) t
        JOIN webhook_endpoints n ON n.id = t.endpoint
        WHERE t.ended IS NULL AND n.failures_in_row = 0 AND n.open_until IS NULL
    ), sampled AS MATERIALIZED (
        SELECT n.id, (SELECT avg(a.took) FROM accepted a WHERE a.is_sample AND a.endpoint = n.id) AS took
        FROM webhook_endpoints n WHERE n.id IN (SELECT a.endpoint FROM accepted a WHERE a.is_sample)
        FOR NO KEY UPDATE SKIP LOCKED
    ), averaged AS (
        UPDATE webhook_endpoints n SET average_ms = coalesce(0.8 * n.average_ms + 0.2 * s.took, s.took)
        FROM sampled s WHERE n.id = s.id
    ), ended AS (
        UPDATE webhook_attempts t SET ended = moment, outcome = 'delivered', duration_ms = a.took, http_status = a.status,
            answer = a.answer
        FROM accepted a WHERE t.delivery_id = a.delivery AND t.try = a.try
    ), delivered AS (
        UPDATE webhook_deliveries o SET tries = a.try, state = 'delivered', delivered_at = moment
        FROM accepted a WHERE o.id = a.delivery
    )
    SELECT a.token FROM accepted a;
END
$$;
