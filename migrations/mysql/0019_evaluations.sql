-- +goose Up
-- Saved queries of datasets with the hits that are expected of them, and what
-- evaluations measured by them. New tables: code that does not know them is not
-- disturbed.
-- Rollback cost: saved queries and evaluations are forgotten.
CREATE TABLE saved_queries (
  dataset_id VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL, tenant_id VARCHAR(64) NOT NULL, version BIGINT NOT NULL, question MEDIUMTEXT NOT NULL, expected MEDIUMTEXT NOT NULL,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE evaluations (
  dataset_id VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL, tenant_id VARCHAR(64) NOT NULL, model MEDIUMTEXT NOT NULL, stale BIGINT NOT NULL, measures MEDIUMTEXT NOT NULL, results MEDIUMTEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE evaluations;
DROP TABLE saved_queries;
