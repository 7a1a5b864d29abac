-- +goose Up
-- The versions of flows: a version is written once and never changed. A deleted
-- one leaves its number, so that no later version is taken for it. A new table:
-- code that does not know it is not disturbed.
-- Rollback cost: flows are forgotten; documents that were made by them stay.
CREATE TABLE flows (
  tenant_id TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL,
  created_at INTEGER NOT NULL, deleted_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, name, version)
);

-- +goose Down
DROP TABLE flows;
