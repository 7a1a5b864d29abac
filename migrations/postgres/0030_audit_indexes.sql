-- +goose NO TRANSACTION
-- +goose Up
-- An audit goes through the documents of a tenant by id, and asks by document for
-- what runs left and for what waits for the collector. Indexes alone: code that
-- does not know them is not disturbed. They are built while a fleet works; what an
-- attempt left that was broken off is of no use and goes first.
-- Rollback cost: the indexes are built anew.
DROP INDEX CONCURRENTLY IF EXISTS k_doc_tenant;
CREATE INDEX CONCURRENTLY k_doc_tenant ON documents (tenant_id, id);
DROP INDEX CONCURRENTLY IF EXISTS k_run_results_doc;
CREATE INDEX CONCURRENTLY k_run_results_doc ON run_results (doc_id);
DROP INDEX CONCURRENTLY IF EXISTS k_garbage_doc;
CREATE INDEX CONCURRENTLY k_garbage_doc ON garbage (doc_id);

-- +goose Down
DROP INDEX CONCURRENTLY k_garbage_doc;
DROP INDEX CONCURRENTLY k_run_results_doc;
DROP INDEX CONCURRENTLY k_doc_tenant;
