-- The queue for those who run it: limits and pauses by type, replays at a rate, work that comes round, and what must never happen.

-- Operators set these; a limit counts over all instances.
ALTER TABLE job_types
    ADD COLUMN max_running int CHECK (max_running > 0),
    ADD COLUMN paused boolean NOT NULL DEFAULT false;

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
    skipped int NOT NULL DEFAULT 0,  -- restarted or closed by somebody else meanwhile
    stopped_by text,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL)),
    CHECK (state <> 'stopped' OR stopped_by IS NOT NULL)
);
CREATE INDEX replays_running ON replays (created_at) WHERE state = 'running';

ALTER TABLE ai_jobs ADD COLUMN replay_id uuid REFERENCES replays;  -- the replay that restarted its present run
CREATE INDEX ai_jobs_replayed ON ai_jobs (replay_id) WHERE status = 'pending' AND replay_id IS NOT NULL;

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
