-- One reply, exactly once: the evidence for what was sent, parts, templates, and what must never happen to a message.

ALTER TABLE messages
    ADD COLUMN lookups_empty int NOT NULL DEFAULT 0,  -- in a row, since the present attempt
    ADD COLUMN last_lookup_at timestamptz,
    ADD COLUMN lookups_failing_since timestamptz,
    -- What showed that Twilio has it: its answer to the request, a callback, its list of messages, or a person.
    ADD COLUMN evidence text CHECK (evidence IN ('answer', 'callback', 'list', 'person')),
    ADD COLUMN second_sid text,  -- it went out twice: the other one
    ADD COLUMN template_sid text,  -- sent as this approved template, outside WhatsApp's 24 hours
    ADD COLUMN template_variables jsonb,
    ADD COLUMN parameters jsonb;  -- what the model was asked with, beside the prompt: temperature, seed

-- The story of a message, for whoever asks later: what was tried, what was found, what settled it.
CREATE TABLE message_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid NOT NULL REFERENCES messages,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt int NOT NULL,
    what text NOT NULL CHECK (what IN (
        'intent', 'accepted', 'refused', 'not_sent', 'ambiguous',
        'lookup_found', 'lookup_empty', 'lookup_failed', 'lookup_foreign',
        'callback', 'second_sid', 'held', 'resend', 'released', 'closed')),
    detail text  -- a status, a sid, a class of error: never a message's text
);
CREATE INDEX message_events_message ON message_events (message_id, id);
