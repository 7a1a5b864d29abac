-- +goose Up
-- The versions of flows: a version is written once and never changed. A deleted
-- one leaves its number, so that no later version is taken for it. A new table:
-- code that does not know it is not disturbed.
-- Rollback cost: flows are forgotten; documents that were made by them stay.
CREATE TABLE flows (
  tenant_id VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL, version BIGINT NOT NULL, digest VARCHAR(64) NOT NULL, body MEDIUMTEXT NOT NULL,
  created_at BIGINT NOT NULL, deleted_at BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, name, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE flows;
