-- +goose Up
-- Runs over datasets with the documents that they read, and where the answers
-- that a model gave for them are kept. New tables: code that does not know them
-- is not disturbed.
-- Rollback cost: runs are forgotten, and models are asked again.
CREATE TABLE dataset_runs (
  dataset_id VARCHAR(64) NOT NULL, kind VARCHAR(64) NOT NULL, number BIGINT NOT NULL, id VARCHAR(64) NOT NULL, tenant_id VARCHAR(64) NOT NULL, task_id VARCHAR(64) NOT NULL, options MEDIUMTEXT NOT NULL, outcome VARCHAR(64) NOT NULL, cause MEDIUMTEXT NOT NULL, progress MEDIUMTEXT NOT NULL, result MEDIUMTEXT NOT NULL, documents BIGINT NOT NULL, created_at BIGINT NOT NULL, ended_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, kind, number), UNIQUE (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE dataset_run_documents (
  run_id VARCHAR(64) NOT NULL, doc_id VARCHAR(64) NOT NULL, gen BIGINT NOT NULL,
  PRIMARY KEY (run_id, doc_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE run_items (
  tenant_id VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL, doc_id VARCHAR(64) NOT NULL, blob_key VARCHAR(512) NOT NULL,
  PRIMARY KEY (tenant_id, name, doc_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_run_items_doc ON run_items (doc_id);

-- +goose Down
DROP TABLE run_items;
DROP TABLE dataset_run_documents;
DROP TABLE dataset_runs;
