-- +goose Up
-- Runs over datasets with the documents that they read, and where the answers
-- that a model gave for them are kept. New tables: code that does not know them
-- is not disturbed.
-- Rollback cost: runs are forgotten, and models are asked again.
CREATE TABLE dataset_runs (
  dataset_id TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, id TEXT COLLATE "C" NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, task_id TEXT COLLATE "C" NOT NULL, options TEXT NOT NULL, outcome TEXT COLLATE "C" NOT NULL, cause TEXT NOT NULL, progress TEXT NOT NULL, result TEXT NOT NULL, documents BIGINT NOT NULL, created_at BIGINT NOT NULL, ended_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, kind, number), UNIQUE (id)
);
CREATE TABLE dataset_run_documents (
  run_id TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, gen BIGINT NOT NULL,
  PRIMARY KEY (run_id, doc_id)
);
CREATE TABLE run_items (
  tenant_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, blob_key TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, name, doc_id)
);
CREATE INDEX k_run_items_doc ON run_items (doc_id);

-- +goose Down
DROP TABLE run_items;
DROP TABLE dataset_run_documents;
DROP TABLE dataset_runs;
