-- +goose Up
-- What people made of chunks, laid over the immutable range results. gen is the
-- generation in which the edit has a chunk, 0 for none; base_range and chunk_id
-- name that chunk, range_id the range that holds the edited one. hides says that
-- the chunk as it was parsed is not found. New tables: code that does not know
-- them finds the chunks as they were parsed.
-- Rollback cost: edits are forgotten.
CREATE TABLE chunk_edits (
  doc_id VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL, tenant_id VARCHAR(64) NOT NULL, version BIGINT NOT NULL, added BIGINT NOT NULL,
  anchor MEDIUMTEXT NOT NULL, content MEDIUMTEXT NOT NULL, author VARCHAR(255) NOT NULL,
  gen BIGINT NOT NULL, chunk_id VARCHAR(96) NOT NULL, base_range VARCHAR(64) NOT NULL, range_id VARCHAR(64) NOT NULL, hides BIGINT NOT NULL,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  PRIMARY KEY (doc_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_edit_range ON chunk_edits (range_id);
CREATE INDEX k_edit_base ON chunk_edits (base_range, hides);

CREATE TABLE chunk_edit_versions (
  doc_id VARCHAR(64) NOT NULL, edit_id VARCHAR(64) NOT NULL, version BIGINT NOT NULL, content MEDIUMTEXT NOT NULL, author VARCHAR(255) NOT NULL, created_at BIGINT NOT NULL,
  PRIMARY KEY (doc_id, edit_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

ALTER TABLE receipt_documents ADD COLUMN edits BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE receipt_documents DROP COLUMN edits;
DROP TABLE chunk_edit_versions;
DROP TABLE chunk_edits;
