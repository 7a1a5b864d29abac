-- +goose Up
-- A try of a keyed request holds its key for a lease, so that the next one can
-- take over from a process that was killed in between. Rows of processes that
-- run the version before are never taken over, as they know no takeover.
-- Rollback cost: keys that are being used at that moment are refused for a day.
ALTER TABLE idempotency ADD COLUMN holder VARCHAR(64) NOT NULL DEFAULT '';
ALTER TABLE idempotency ADD COLUMN lease_until BIGINT NOT NULL DEFAULT 9223372036854775807;

-- +goose Down
ALTER TABLE idempotency DROP COLUMN lease_until;
ALTER TABLE idempotency DROP COLUMN holder;
