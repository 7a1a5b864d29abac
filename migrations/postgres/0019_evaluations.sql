-- +goose Up
-- Saved queries of datasets with the hits that are expected of them, and what
-- evaluations measured by them. New tables: code that does not know them is not
-- disturbed.
-- Rollback cost: saved queries and evaluations are forgotten.
CREATE TABLE saved_queries (
  dataset_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, question TEXT NOT NULL, expected TEXT NOT NULL,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, id)
);
CREATE TABLE evaluations (
  dataset_id TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, model TEXT NOT NULL, stale BIGINT NOT NULL, measures TEXT NOT NULL, results TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (dataset_id, id)
);

-- +goose Down
DROP TABLE evaluations;
DROP TABLE saved_queries;
