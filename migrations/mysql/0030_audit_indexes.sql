-- +goose Up
-- An audit goes through the documents of a tenant by id, and asks by document for
-- what runs left and for what waits for the collector. Indexes alone: code that
-- does not know them is not disturbed. They are built while a fleet works.
-- Rollback cost: the indexes are built anew.
CREATE INDEX k_doc_tenant ON documents (tenant_id, id) ALGORITHM=INPLACE LOCK=NONE;
CREATE INDEX k_run_results_doc ON run_results (doc_id) ALGORITHM=INPLACE LOCK=NONE;
CREATE INDEX k_garbage_doc ON garbage (doc_id) ALGORITHM=INPLACE LOCK=NONE;

-- +goose Down
DROP INDEX k_garbage_doc ON garbage;
DROP INDEX k_run_results_doc ON run_results;
DROP INDEX k_doc_tenant ON documents;
