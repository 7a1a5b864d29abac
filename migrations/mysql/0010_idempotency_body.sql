-- +goose Up
-- What the first try of a keyed request sent is kept as a digest, so that
-- another body under the same key is noticed. '' is a body that nobody has read
-- to its end yet, or that a process of the version before has read: that one is
-- not compared.
-- Rollback cost: none but that other bodies are not noticed.
ALTER TABLE idempotency ADD COLUMN body_digest VARCHAR(128) NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE idempotency DROP COLUMN body_digest;
