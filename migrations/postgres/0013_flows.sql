-- +goose Up
-- The versions of flows: a version is written once and never changed. A deleted
-- one leaves its number, so that no later version is taken for it. A new table:
-- code that does not know it is not disturbed.
-- Rollback cost: flows are forgotten; documents that were made by them stay.
CREATE TABLE flows (
  tenant_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, digest TEXT COLLATE "C" NOT NULL, body TEXT NOT NULL,
  created_at BIGINT NOT NULL, deleted_at BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, name, version)
);

-- +goose Down
DROP TABLE flows;
