-- The queue for those who run it: limits and pauses by type, replays at a rate, work that comes round, and what must never happen.

-- All at once, in the order in which a job takes them: what is taken bit by bit meets the traffic half way. `migrate` gives way and
-- tries again when it has to wait for long.
LOCK TABLE ai_jobs, suggestions, imports, job_attempts, job_types IN ACCESS EXCLUSIVE MODE;

-- Operators set these; a limit counts over all instances.
ALTER TABLE job_types
    ADD COLUMN max_running int CHECK (max_running > 0),
    ADD COLUMN paused boolean NOT NULL DEFAULT false,
    ADD COLUMN age_from timestamptz;  -- it was resumed: no job of it is older than that

-- A replay is a plan that any process can carry on: whoever locks its row restarts the next few and moves the cursor in the
-- same transaction, so that a killed one neither skips nor doubles.
CREATE TABLE replays (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    who text NOT NULL CHECK (who <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    filter jsonb NOT NULL,
    rate float8 NOT NULL CHECK (rate > 0),  -- restarts a second
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'done')),
    total int NOT NULL CHECK (total >= 0),  -- dead letters that matched when it was made
    cursor_seq bigint NOT NULL DEFAULT 0,  -- of the last job that it has looked at
    next_due_at timestamptz NOT NULL DEFAULT now(),  -- when the next one that it restarts is due
    restarted int NOT NULL DEFAULT 0,
    joined int NOT NULL DEFAULT 0,
    left_out int NOT NULL DEFAULT 0,  -- may have arrived: for a person to look at
    left_paused int NOT NULL DEFAULT 0,  -- their type was paused or unknown: still dead letters, for a later replay
    paused_types text[] NOT NULL DEFAULT '{}',  -- which types those were
    skipped int NOT NULL DEFAULT 0,  -- restarted or closed by somebody else meanwhile
    stopped_by text,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL)),
    CHECK (state <> 'stopped' OR stopped_by IS NOT NULL)
);
CREATE INDEX replays_running ON replays (created_at) WHERE state = 'running';

ALTER TABLE ai_jobs ADD COLUMN replay_id uuid REFERENCES replays;  -- the replay that restarted its present run
-- How many of a replay's jobs are due and not yet claimed: what holds the replay back.
CREATE INDEX ai_jobs_replayed ON ai_jobs (replay_id, next_run_at) WHERE status = 'pending' AND replay_id IS NOT NULL;
-- A replay goes through the dead letters in their order, from where it was.
CREATE INDEX ai_jobs_dead_in_order ON ai_jobs (seq) WHERE status = 'failed' AND closed_at IS NULL;

CREATE OR REPLACE VIEW dead_letters AS SELECT * FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL;

-- An id out of a payload; null when it is none, for one broken payload must not stop what looks at thousands.
CREATE FUNCTION uuid_or_null(given text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN given ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN given::uuid END
$$;

-- The dead letters that match every key of a filter (type, class, error, phone, since, until, older_than in seconds) and were
-- dead at a moment. One plain SELECT, so that the planner takes it apart: what the caller orders and limits is limited here.
CREATE FUNCTION dead_letters_matching(filter jsonb, as_of timestamptz) RETURNS SETOF ai_jobs LANGUAGE sql STABLE AS $$
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
$$;

-- Work that comes round (housekeeping, the sweep): whoever moves `ran_at` does it, over all instances.
CREATE TABLE chores (
    name text PRIMARY KEY,
    ran_at timestamptz NOT NULL
);

-- The running jobs by type: what a limit counts, what a fair claim weighs, and what a rescue looks at.
DROP INDEX ai_jobs_processing;
CREATE INDEX ai_jobs_processing ON ai_jobs (type) WHERE status = 'processing';

-- States move along these arrows alone; a finished or closed job stays as it is. The condition is part of the trigger, so that
-- a legal change costs no function call.
CREATE FUNCTION refuse_job_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % cannot go from % to %', old.id,
        old.status || CASE WHEN old.closed_at IS NULL THEN '' ELSE ' (closed)' END, new.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'ai_jobs_transition';
END
$$;
CREATE TRIGGER ai_jobs_transition BEFORE UPDATE ON ai_jobs FOR EACH ROW
    WHEN (old.closed_at IS NOT NULL
        OR old.status = 'done'
        OR old.status = 'pending' AND new.status = 'done'
        OR old.status = 'failed' AND new.status = 'processing'
        OR old.status = 'pending' AND new.status = 'failed' AND new.closed_at IS NULL
        OR old.status = 'processing' AND new.closed_at IS NOT NULL)
    EXECUTE FUNCTION refuse_job_transition();

-- What else would be a hope: says in a sentence what the row must not do, and between which states it would have been.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := to_jsonb(old);
    after jsonb := to_jsonb(new);
BEGIN
    RAISE EXCEPTION '% % cannot change like this: %', TG_ARGV[0], before ->> 'id', TG_ARGV[1]
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, DETAIL = format('%s → %s',
            coalesce(before ->> 'status', before ->> 'state'), coalesce(after ->> 'status', after ->> 'state'));
END
$$;

-- A job is taken from 'pending' alone, and counted when it is: nobody takes it from the worker that has it. Its run is a new one
-- when it is restarted, and only then; so its attempts are told apart for ever. That a message has joined is forgotten only by
-- the worker that reads it, or by a restart, which reads anew.
CREATE TRIGGER ai_jobs_bookkeeping BEFORE UPDATE ON ai_jobs FOR EACH ROW
    WHEN (old.conversation_id IS DISTINCT FROM new.conversation_id
        OR old.status = 'processing' AND new.status = 'processing' AND old.lease_token <> new.lease_token
        OR old.status = 'pending' AND new.status = 'processing' AND new.claims <> old.claims + 1
        OR new.run = old.run AND new.claims < old.claims
        OR new.run <> old.run + CASE WHEN old.status = 'failed' AND new.status = 'pending' THEN 1 ELSE 0 END
        OR old.rerun AND NOT new.rerun AND new.run = old.run AND (old.status <> 'processing' OR new.status <> 'processing'))
    EXECUTE FUNCTION refuse_change('job', 'a claim takes it from pending and is counted, a restart is a new run, and rerun stays');

-- A replay never looks at a job twice, restarts nothing while it is stopped, and is over when it is done.
CREATE TRIGGER replays_transition BEFORE UPDATE ON replays FOR EACH ROW
    WHEN (old.state = 'done' AND new.state <> 'done'
        OR new.cursor_seq < old.cursor_seq
        OR old.state <> 'running' AND new.cursor_seq <> old.cursor_seq
        OR new.restarted < old.restarted OR new.joined < old.joined
        OR new.left_out < old.left_out OR new.left_paused < old.left_paused OR new.skipped < old.skipped)
    EXECUTE FUNCTION refuse_change('replay', 'its place and its counts only go forward, and only while it runs');

-- An import that is done stays so, and no line of its file is read twice.
CREATE TRIGGER imports_transition BEFORE UPDATE ON imports FOR EACH ROW
    WHEN (old.state = 'done' AND new.state <> 'done'
        OR old.state <> 'waiting' AND new.state = 'waiting'
        OR new.next_line < old.next_line
        OR new.rows_done < old.rows_done)
    EXECUTE FUNCTION refuse_change('import', 'its place only goes forward, and when it is done it is over');

-- A job whose worker stopped in the middle before and that is on its last attempt is a suspect: it may be what kills its worker,
-- or may only have run beside that. One suspect at a time is processing, over all instances, so that the killer is buried and the
-- innocent are not.
ALTER TABLE ai_jobs ADD COLUMN has_crashed boolean NOT NULL DEFAULT false;
CREATE INDEX ai_jobs_suspect ON ai_jobs (type, next_run_at, seq)
    WHERE status = 'pending' AND has_crashed AND attempts + 1 >= max_attempts;

-- Takes due jobs of the given types (null: all in job_types), oldest due first within a type.
-- Between types by (running + place) / weight: who has little running for its weight comes first, so that a message gets the
-- next free slot however many imports run. And so that nobody waits for ever where slots are few: a type that has nothing running
-- and has waited for a minute goes first if it wins a draw, in which each type's chance is its share of the weights.
-- A type that is paused gives none. One with a limit gives what is left of it: whoever locks its row counts what runs with the
-- next statement's snapshot, and the others pass it by. One that rests gives a single job, once its rest has passed, and rests
-- for another ten seconds.
-- It is plpgsql for its plan, which the session keeps, as store_inbound's; the settings keep that plan on the index whatever
-- the statistics say of a queue that is empty at one moment and has a million rows at the next.
-- The inner selects are MATERIALIZED so that the planner cannot run them twice and claim more than was asked for.
CREATE OR REPLACE FUNCTION claim_ai_jobs(batch_size int, types text[] DEFAULT NULL, lease interval DEFAULT '30 seconds')
RETURNS SETOF ai_jobs LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    some_may_probe boolean;
    some_are_limited boolean;
    some_are_suspect boolean;
    probing text[] := '{}';
    counted text[] := '{}';
    takes_suspect boolean := false;
BEGIN
    SELECT coalesce(bool_or(t.resting_until <= now()), false), coalesce(bool_or(t.max_running IS NOT NULL), false),
        EXISTS (SELECT FROM ai_jobs j
                WHERE j.status = 'pending' AND j.has_crashed AND j.attempts + 1 >= j.max_attempts
                    AND j.next_run_at <= now() AND (types IS NULL OR j.type = ANY (types)))
    INTO some_may_probe, some_are_limited, some_are_suspect
    FROM job_types t WHERE NOT t.paused AND (types IS NULL OR t.type = ANY (types));

    -- Nothing here waits for a lock: what is locked is being claimed, or has just changed.
    IF some_are_limited THEN
        SELECT coalesce(array_agg(l.type), '{}') INTO counted
        FROM (SELECT t.type FROM job_types t WHERE t.max_running IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED) l;
    END IF;
    IF some_may_probe THEN
        WITH probed AS (
            UPDATE job_types SET resting_until = now() + interval '10 seconds'
            WHERE type IN (
                SELECT t.type FROM job_types t
                WHERE t.resting_until <= now() AND NOT t.paused AND (types IS NULL OR t.type = ANY (types))
                    AND (t.max_running IS NULL OR t.type = ANY (counted))
                    AND EXISTS (SELECT FROM ai_jobs j
                                WHERE j.type = t.type AND j.status = 'pending' AND j.next_run_at <= now())
                FOR NO KEY UPDATE SKIP LOCKED)
            RETURNING type
        )
        SELECT coalesce(array_agg(p.type), '{}') INTO probing FROM probed p;
    END IF;
    IF some_are_suspect AND pg_try_advisory_xact_lock(hashtextextended('antwoord: one suspect at a time', 0)) THEN
        takes_suspect := NOT EXISTS (
            SELECT FROM ai_jobs j
            WHERE j.status = 'processing' AND j.has_crashed AND j.attempts >= j.max_attempts
                AND j.lease_until > now());  -- one whose worker is gone keeps nobody waiting
    END IF;

    RETURN QUERY WITH waiting AS MATERIALIZED (
        SELECT t.type, t.weight, t.max_running, t.type = ANY (probing) AS probes,
            (SELECT j.next_run_at FROM ai_jobs j
             WHERE j.type = t.type AND j.status = 'pending' AND j.next_run_at <= now()
             ORDER BY j.next_run_at, j.seq LIMIT 1) AS since
        FROM job_types t
        WHERE NOT t.paused AND (types IS NULL OR t.type = ANY (types))
            AND (t.resting_until IS NULL OR t.type = ANY (probing))
            AND (t.max_running IS NULL OR t.type = ANY (counted))
    ), weighed AS MATERIALIZED (
        -- What runs is counted only where it matters. The smallest of exponential draws is each one's by its weight.
        SELECT w.type, w.weight, w.max_running, w.probes, w.since, -ln(1 - random()) / w.weight AS draw,
            CASE WHEN w.max_running IS NOT NULL OR count(*) OVER () > 1 THEN (
                SELECT count(*) FROM ai_jobs r WHERE r.type = w.type AND r.status = 'processing') ELSE 0 END AS running
        FROM waiting w WHERE w.since IS NOT NULL
    ), wanted AS MATERIALIZED (
        SELECT w.type, w.weight, w.running,
            greatest(least(batch_size, CASE WHEN w.probes THEN 1 END, w.max_running - w.running), 0) AS room,
            w.draw = min(w.draw) OVER () AND w.running = 0 AND w.since < now() - interval '1 minute' AS goes_first
        FROM weighed w
    ), suspect AS MATERIALIZED (
        SELECT j.id, j.type, j.next_run_at, j.seq FROM ai_jobs j
        WHERE takes_suspect AND j.status = 'pending' AND j.has_crashed AND j.attempts + 1 >= j.max_attempts
            AND j.next_run_at <= now() AND j.type IN (SELECT w.type FROM wanted w WHERE w.room > 0)
        ORDER BY j.next_run_at, j.seq
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ), candidates AS MATERIALIZED (
        SELECT c.id, c.next_run_at, c.seq, w.type
        FROM wanted w CROSS JOIN LATERAL (
            SELECT j.id, j.next_run_at, j.seq FROM ai_jobs j
            WHERE j.type = w.type AND j.status = 'pending' AND j.next_run_at <= now()
                AND NOT (j.has_crashed AND j.attempts + 1 >= j.max_attempts)
            ORDER BY j.next_run_at, j.seq
            LIMIT w.room
            FOR NO KEY UPDATE SKIP LOCKED
        ) c
        UNION ALL
        SELECT s.id, s.next_run_at, s.seq, s.type FROM suspect s
    ), placed AS (
        SELECT c.id, c.next_run_at, c.seq, w.weight, w.running, w.room, w.goes_first,
            row_number() OVER (PARTITION BY c.type ORDER BY c.next_run_at, c.seq) AS place
        FROM candidates c JOIN wanted w USING (type)
    ), due AS MATERIALIZED (
        SELECT p.id FROM placed p
        WHERE p.place <= p.room
        ORDER BY p.goes_first AND p.place = 1 DESC, (p.running + p.place)::float8 / p.weight, p.next_run_at, p.seq
        LIMIT batch_size
    )
    UPDATE ai_jobs SET status = 'processing', attempts = ai_jobs.attempts + 1, claims = ai_jobs.claims + 1,
        lease_token = gen_random_uuid(), lease_until = now() + lease, claimed_at = now(), updated_at = now()
    WHERE ai_jobs.id IN (SELECT d.id FROM due d)
    RETURNING ai_jobs.*;
END
$$;

-- Completes jobs that have nothing to write, in one statement, each fenced by its own token. What is locked by somebody or is no
-- longer this worker's is left out of the answer, and hurts none of the others.
CREATE FUNCTION finish_ai_jobs(job_ids uuid[], tokens uuid[]) RETURNS TABLE (finished_token uuid, made_next boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY WITH held AS MATERIALIZED (
        SELECT j.id, given.token FROM unnest(job_ids, tokens) AS given (id, token) JOIN ai_jobs j ON j.id = given.id
        WHERE j.lease_token = given.token AND j.status = 'processing'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), finished AS (
        UPDATE ai_jobs SET status = 'done', lease_token = NULL, lease_until = NULL, last_error = NULL,
            error_class = NULL, updated_at = now()
        WHERE ai_jobs.id IN (SELECT h.id FROM held h)
        RETURNING ai_jobs.id, ai_jobs.type, ai_jobs.payload, ai_jobs.conversation_id, ai_jobs.run, ai_jobs.claims,
            ai_jobs.claimed_at, ai_jobs.rerun, ai_jobs.seq
    ), attempt AS (
        INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)
        SELECT f.id, f.run, f.claims, f.claimed_at, clock_timestamp(), 'done' FROM finished f
    ), recovering AS MATERIALIZED (
        SELECT t.type FROM job_types t
        WHERE t.failures_in_row > 0 AND t.type IN (SELECT f.type FROM finished f)
        ORDER BY t.type FOR NO KEY UPDATE
    ), recovered AS (
        UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL
        WHERE job_types.type IN (SELECT r.type FROM recovering r)
    ), next AS (
        INSERT INTO ai_jobs (payload, conversation_id)
        SELECT f.payload, f.conversation_id FROM finished f WHERE f.rerun ORDER BY f.seq
    )
    SELECT h.token, f.rerun FROM finished f JOIN held h USING (id);
END
$$;

-- A worker's turn in one round trip and one commit: what has ended is recorded, and as much as there is room for is claimed.
CREATE FUNCTION turn_ai_jobs(job_ids uuid[], tokens uuid[], batch_size int, types text[], lease interval)
RETURNS TABLE (finished_token uuid, made_next boolean, claimed ai_jobs) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF cardinality(job_ids) > 0 THEN
        RETURN QUERY SELECT f.finished_token, f.made_next, NULL::ai_jobs FROM finish_ai_jobs(job_ids, tokens) f;
    END IF;
    IF batch_size > 0 THEN
        RETURN QUERY SELECT NULL::uuid, NULL::boolean, c FROM claim_ai_jobs(batch_size, types, lease) c;
    END IF;
END
$$;

-- Vacuum by number of rows, not by share of the table: the claim reads the head of an index, where each job leaves dead entries
-- behind, and waiting for a fifth of two million rows would leave 400,000 of them. No pauses: these runs are short.
ALTER TABLE ai_jobs SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 2000);
-- Written once, deleted in small batches by age: what matters is that the visibility map follows.
ALTER TABLE job_attempts SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0.05);
-- A few rows, read by every claim and rewritten by each failure of an outage.
ALTER TABLE job_types SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
-- Each message changes its status a few times in its first minute, and is then only read.
ALTER TABLE messages SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0.05);

-- Finished jobs are forgotten after JOB_RETENTION_DAYS; a suggestion outlives the job that made it, as a message does.
ALTER TABLE suggestions DROP CONSTRAINT suggestions_job_id_fkey;

-- Most bulk work belongs to no conversation: this index need not hold it. A claim and a completion write each index of the table.
DROP INDEX ai_jobs_conversation;
CREATE INDEX ai_jobs_conversation ON ai_jobs (conversation_id, seq) WHERE conversation_id IS NOT NULL;

-- Which jobs took long, for those who look: what takes less than a second costs this index nothing.
CREATE INDEX job_attempts_long ON job_attempts (ended) WHERE ended - started >= interval '1 second';
