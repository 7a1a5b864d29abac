-- +goose Up
-- What tenants have spent on a language model, in tokens: by day and by version
-- of a document (by a hash: nothing here names a document). A new table: code that
-- does not know it is not disturbed.
-- Rollback cost: what was spent is forgotten, and caps begin anew.
CREATE TABLE model_spending (
  tenant_id VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL, tokens BIGINT NOT NULL, spent_at BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_spending_at ON model_spending (spent_at);

-- +goose Down
DROP TABLE model_spending;
