-- +goose Up
-- What people made of chunks, laid over the immutable range results. gen is the
-- generation in which the edit has a chunk, 0 for none; base_range and chunk_id
-- name that chunk, range_id the range that holds the edited one. hides says that
-- the chunk as it was parsed is not found. New tables: code that does not know
-- them finds the chunks as they were parsed.
-- Rollback cost: edits are forgotten.
CREATE TABLE chunk_edits (
  doc_id TEXT NOT NULL, id TEXT NOT NULL, tenant_id TEXT NOT NULL, version INTEGER NOT NULL, added INTEGER NOT NULL,
  anchor TEXT NOT NULL, content TEXT NOT NULL, author TEXT NOT NULL,
  gen INTEGER NOT NULL, chunk_id TEXT NOT NULL, base_range TEXT NOT NULL, range_id TEXT NOT NULL, hides INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (doc_id, id)
);
CREATE INDEX k_edit_range ON chunk_edits (range_id);
CREATE INDEX k_edit_base ON chunk_edits (base_range, hides);

CREATE TABLE chunk_edit_versions (
  doc_id TEXT NOT NULL, edit_id TEXT NOT NULL, version INTEGER NOT NULL, content TEXT NOT NULL, author TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (doc_id, edit_id, version)
);

ALTER TABLE receipt_documents ADD COLUMN edits INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE receipt_documents DROP COLUMN edits;
DROP TABLE chunk_edit_versions;
DROP TABLE chunk_edits;
