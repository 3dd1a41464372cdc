-- What a conversation's page looks up beside its messages: the job that sends one, who wrote it, and who took it over.

CREATE INDEX ai_jobs_message ON ai_jobs ((payload ->> 'message_id')) WHERE type = 'send_message';
CREATE INDEX audit_log_message ON audit_log ((details ->> 'message')) WHERE details ->> 'message' IS NOT NULL;
CREATE INDEX audit_log_target ON audit_log (target_id, id);
