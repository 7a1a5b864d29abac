-- +goose Up
-- What runs over datasets leave for search: stored ranges, each with the documents
-- whose text it holds. New tables, and a column that code which does not know it
-- leaves alone.
-- Rollback cost: summaries are gone from search, and made anew by the next run
-- from the answers that were paid for.
CREATE TABLE run_results (
  range_id TEXT NOT NULL, tenant_id TEXT NOT NULL, dataset_id TEXT NOT NULL, kind TEXT NOT NULL, doc_id TEXT NOT NULL, name TEXT NOT NULL, layer INTEGER NOT NULL, artifact_key TEXT NOT NULL, chunk_count INTEGER NOT NULL, token_count INTEGER NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (range_id)
);
CREATE INDEX k_run_results_dataset ON run_results (dataset_id, kind, range_id);
CREATE TABLE run_result_sources (
  range_id TEXT NOT NULL, doc_id TEXT NOT NULL, gen INTEGER NOT NULL,
  PRIMARY KEY (range_id, doc_id)
);
CREATE INDEX k_run_result_sources_doc ON run_result_sources (doc_id, range_id);
ALTER TABLE dataset_runs ADD COLUMN auto_update INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE dataset_runs DROP COLUMN auto_update;
DROP TABLE run_result_sources;
DROP TABLE run_results;
