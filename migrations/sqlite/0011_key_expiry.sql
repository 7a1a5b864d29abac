-- +goose Up
-- A key may end by itself: milliseconds since 1970, 0 for never.
-- Rollback cost: keys that have ended are let in again.
ALTER TABLE api_keys ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE api_keys DROP COLUMN expires_at;
