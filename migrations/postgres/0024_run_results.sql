-- +goose Up
-- What runs over datasets leave for search: stored ranges, each with the documents
-- whose text it holds. New tables, and a column that code which does not know it
-- leaves alone.
-- Rollback cost: summaries are gone from search, and made anew by the next run
-- from the answers that were paid for.
CREATE TABLE run_results (
  range_id TEXT COLLATE "C" NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, layer BIGINT NOT NULL, artifact_key TEXT COLLATE "C" NOT NULL, chunk_count BIGINT NOT NULL, token_count BIGINT NOT NULL, created_at BIGINT NOT NULL,
  PRIMARY KEY (range_id)
);
CREATE INDEX k_run_results_dataset ON run_results (dataset_id, kind, range_id);
CREATE TABLE run_result_sources (
  range_id TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, gen BIGINT NOT NULL,
  PRIMARY KEY (range_id, doc_id)
);
CREATE INDEX k_run_result_sources_doc ON run_result_sources (doc_id, range_id);
ALTER TABLE dataset_runs ADD COLUMN auto_update BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE dataset_runs DROP COLUMN auto_update;
DROP TABLE run_result_sources;
DROP TABLE run_results;
