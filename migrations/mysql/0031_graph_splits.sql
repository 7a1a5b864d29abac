-- +goose Up
-- Names of datasets that their graphs keep apart. A new table: code that does not
-- know it is not disturbed.
-- Rollback cost: what was taken apart is merged again.
CREATE TABLE graph_splits (
  dataset_id VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL, tenant_id VARCHAR(64) NOT NULL, names MEDIUMTEXT NOT NULL, created_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE graph_splits;
