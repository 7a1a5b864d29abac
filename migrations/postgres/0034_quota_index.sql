-- +goose NO TRANSACTION
-- +goose Up
-- A tenant's quota is checked with each upload, by counting its documents and adding
-- up their sizes. An index alone: code that does not know it is not disturbed. It is
-- built while a fleet works; what an attempt left that was broken off is of no use
-- and goes first.
-- Rollback cost: the index is built anew.
DROP INDEX CONCURRENTLY IF EXISTS k_doc_quota;
CREATE INDEX CONCURRENTLY k_doc_quota ON documents (tenant_id, deleted_at, size);

-- +goose Down
DROP INDEX CONCURRENTLY k_doc_quota;
