-- +goose Up
-- Documents that are files of an archive: which document holds them, directly
-- and outermost, under which path, and the generation of it that they belong
-- to. Columns with defaults: code that does not know them is not disturbed.
-- Rollback cost: what came out of archives stays, as documents of their own.
ALTER TABLE documents ADD COLUMN parent_id TEXT NOT NULL DEFAULT '';
ALTER TABLE documents ADD COLUMN root_id TEXT NOT NULL DEFAULT '';
ALTER TABLE documents ADD COLUMN parent_gen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN member_path TEXT NOT NULL DEFAULT '';
CREATE INDEX k_doc_parent ON documents (parent_id, id);
CREATE INDEX k_doc_root ON documents (root_id, deleted_at);

-- +goose Down
DROP INDEX k_doc_root;
DROP INDEX k_doc_parent;
ALTER TABLE documents DROP COLUMN member_path;
ALTER TABLE documents DROP COLUMN depth;
ALTER TABLE documents DROP COLUMN parent_gen;
ALTER TABLE documents DROP COLUMN root_id;
ALTER TABLE documents DROP COLUMN parent_id;
