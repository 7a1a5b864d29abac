-- +goose Up
-- What a deletion promised and what became of it: a receipt is pending until
-- the collector has removed the last object, chunk and vector, and is kept when
-- its dataset is gone. Garbage names the receipt that waits for it. New tables,
-- and columns with defaults: code of the version before deletes without receipt
-- and removes what others are waiting for without counting it.
-- Rollback cost: receipts are forgotten; what they wait for is removed all the same.

CREATE TABLE receipts (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL, kind VARCHAR(64) NOT NULL, state VARCHAR(64) NOT NULL, pass INT NOT NULL DEFAULT 0, next_at BIGINT NOT NULL DEFAULT 0,
  webhooks INT NOT NULL DEFAULT 0, answers INT NOT NULL DEFAULT 0, sweep_after VARCHAR(128) NOT NULL DEFAULT '', objects INT NOT NULL DEFAULT 0, object_bytes BIGINT NOT NULL DEFAULT 0,
  body LONGTEXT NOT NULL, created_at BIGINT NOT NULL, completed_at BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_receipt_tenant ON receipts (tenant_id, id);
CREATE INDEX k_receipt_dataset ON receipts (tenant_id, dataset_id, id);
CREATE INDEX k_receipt_due ON receipts (state, next_at);

CREATE TABLE receipt_documents (
  receipt_id VARCHAR(64) NOT NULL, doc_id VARCHAR(64) NOT NULL, pass INT NOT NULL DEFAULT 0,
  generations INT NOT NULL DEFAULT 0, tasks INT NOT NULL DEFAULT 0, events INT NOT NULL DEFAULT 0, messages INT NOT NULL DEFAULT 0, uploads INT NOT NULL DEFAULT 0,
  objects INT NOT NULL DEFAULT 0, object_bytes BIGINT NOT NULL DEFAULT 0, chunks INT NOT NULL DEFAULT 0, vectors INT NOT NULL DEFAULT 0, kept LONGTEXT NOT NULL,
  PRIMARY KEY (receipt_id, doc_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_receipt_pass ON receipt_documents (receipt_id, pass, doc_id);

ALTER TABLE garbage ADD COLUMN receipt_id VARCHAR(64) NOT NULL DEFAULT '';
ALTER TABLE garbage ADD COLUMN counted INT NOT NULL DEFAULT 0;
CREATE INDEX k_garbage_receipt ON garbage (receipt_id);

-- +goose Down
DROP INDEX k_garbage_receipt ON garbage;
ALTER TABLE garbage DROP COLUMN counted;
ALTER TABLE garbage DROP COLUMN receipt_id;
DROP TABLE receipt_documents;
DROP TABLE receipts;
