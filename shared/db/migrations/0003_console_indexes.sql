-- What the console's pages look up beside what the queue and the webhooks need.

-- The newest jobs first, a page at a time.
CREATE INDEX ai_jobs_newest ON ai_jobs (seq);
-- The last day's messages: they lie together, so that a few ranges of pages are all that is read, and an insert costs nothing.
CREATE INDEX messages_lately ON messages USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);
