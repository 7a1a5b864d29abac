-- +goose Up
-- The names of the keys that secrets in this store may be sealed with, so that
-- a process with another key is refused. A new table: code that does not know
-- it is not disturbed by it, but cannot read a secret that is sealed.
-- Rollback cost: webhooks sign nothing, and documents ask for their passwords
-- again, until code that knows the table is back.
CREATE TABLE secret_keys (id TEXT COLLATE "C" NOT NULL PRIMARY KEY, created_at BIGINT NOT NULL, swept_at BIGINT NOT NULL DEFAULT 0);

-- +goose Down
DROP TABLE secret_keys;
