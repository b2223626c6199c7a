-- From format 3 to 4: sessions of other agents, read from their logs. What is there is ours.
ALTER TABLE session ADD COLUMN origin TEXT;
ALTER TABLE call ADD COLUMN foreign_id TEXT;
CREATE UNIQUE INDEX call_foreign ON call (session, foreign_id) WHERE foreign_id IS NOT NULL;
