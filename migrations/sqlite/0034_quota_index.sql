-- +goose Up
-- A tenant's quota is checked with each upload, by counting its documents and adding
-- up their sizes. An index alone: code that does not know it is not disturbed.
-- Rollback cost: the index is built anew.
CREATE INDEX k_doc_quota ON documents (tenant_id, deleted_at, size);

-- +goose Down
DROP INDEX k_doc_quota;
