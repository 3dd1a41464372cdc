-- Suggestions, imports of people, and what the console needs: sign-ins, sessions and the audit log.

INSERT INTO job_types (type, weight) VALUES ('suggest', 2), ('import_people', 1);

-- A person's own record is one chunk, found by that person alone.
CREATE UNIQUE INDEX chunks_one_record ON chunks (person_id, ordinal) WHERE person_id IS NOT NULL;
CREATE INDEX people_external_id ON people (external_id) WHERE external_id IS NOT NULL;

CREATE TABLE suggestions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    conversation_id uuid NOT NULL REFERENCES conversations,
    asked_by text NOT NULL,
    job_id uuid NOT NULL REFERENCES ai_jobs,
    text text NOT NULL,
    language text NOT NULL CHECK (language IN ('nl', 'en')),
    citations jsonb NOT NULL DEFAULT '[]',
    model text,
    prompt_version text,
    sources_hash text,
    answers uuid[] NOT NULL,  -- the inbound messages that were in the prompt
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'sent', 'rejected')),
    edited_text text,
    message_id uuid REFERENCES messages,  -- what was sent of it
    decided_by text,
    decided_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'open') = (decided_at IS NULL)),
    CHECK ((decided_at IS NULL) = (decided_by IS NULL)),
    CHECK ((state = 'sent') = (message_id IS NOT NULL))
);
CREATE INDEX suggestions_conversation ON suggestions (conversation_id, created_at);
-- One open suggestion a conversation: a newer one takes the older one's place.
CREATE UNIQUE INDEX suggestions_one_open ON suggestions (conversation_id) WHERE state = 'open';

CREATE TABLE imports (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    source text NOT NULL,  -- the file's name, shown and never used as a path
    content bytea,  -- the file; dropped when the import has ended
    column_map jsonb NOT NULL,  -- field → column of the file
    delimiter text NOT NULL,
    encoding text NOT NULL,
    dry_run boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    reason text,
    rows_total int NOT NULL,
    rows_done int NOT NULL DEFAULT 0,
    next_line int NOT NULL DEFAULT 0,  -- where the next batch begins: a killed import goes on there
    added int NOT NULL DEFAULT 0,
    changed int NOT NULL DEFAULT 0,
    unchanged int NOT NULL DEFAULT 0,
    rejected int NOT NULL DEFAULT 0,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CHECK ((state IN ('done', 'failed')) = (ended_at IS NOT NULL)),
    CHECK (rows_done = added + changed + unchanged + rejected)
);

CREATE TABLE import_rows (
    import_id uuid NOT NULL REFERENCES imports ON DELETE CASCADE,
    line int NOT NULL,  -- of the file, from 1; the header is line 1 unless something stands above it
    outcome text NOT NULL CHECK (outcome IN ('added', 'changed', 'unchanged', 'rejected')),
    reason text,
    PRIMARY KEY (import_id, line),
    CHECK ((outcome = 'rejected') = (reason IS NOT NULL))
);

-- One-time links (`up` prints one), and the sessions that they and the platform's sign-in begin. Only hashes are kept.
CREATE TABLE ops_links (
    token_sha256 bytea PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at timestamptz
);
CREATE TABLE ops_sessions (
    token_sha256 bytea PRIMARY KEY,
    who text NOT NULL,
    csrf_token text NOT NULL,
    language text CHECK (language IN ('nl', 'en')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

CREATE TABLE audit_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    who text NOT NULL,
    what text NOT NULL,
    target_type text NOT NULL,
    target_id text,
    details jsonb NOT NULL DEFAULT '{}'  -- ids, counts and reasons; never a message's text
);
CREATE INDEX audit_log_newest ON audit_log (at DESC);
