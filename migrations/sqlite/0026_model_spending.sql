-- +goose Up
-- What tenants have spent on a language model, in tokens: by day and by version
-- of a document (by a hash: nothing here names a document). A new table: code that
-- does not know it is not disturbed.
-- Rollback cost: what was spent is forgotten, and caps begin anew.
CREATE TABLE model_spending (
  tenant_id TEXT NOT NULL, name TEXT NOT NULL, tokens INTEGER NOT NULL, spent_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, name)
);
CREATE INDEX k_spending_at ON model_spending (spent_at);

-- +goose Down
DROP TABLE model_spending;
