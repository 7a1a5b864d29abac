-- +goose Up
-- What a deletion promised and what became of it: a receipt is pending until
-- the collector has removed the last object, chunk and vector, and is kept when
-- its dataset is gone. Garbage names the receipt that waits for it. New tables,
-- and columns with defaults: code of the version before deletes without receipt
-- and removes what others are waiting for without counting it.
-- Rollback cost: receipts are forgotten; what they wait for is removed all the same.

CREATE TABLE receipts (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL, state TEXT COLLATE "C" NOT NULL, pass INTEGER NOT NULL DEFAULT 0, next_at BIGINT NOT NULL DEFAULT 0,
  webhooks INTEGER NOT NULL DEFAULT 0, answers INTEGER NOT NULL DEFAULT 0, sweep_after TEXT COLLATE "C" NOT NULL DEFAULT '', objects INTEGER NOT NULL DEFAULT 0, object_bytes BIGINT NOT NULL DEFAULT 0,
  body TEXT NOT NULL, created_at BIGINT NOT NULL, completed_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX k_receipt_tenant ON receipts (tenant_id, id);
CREATE INDEX k_receipt_dataset ON receipts (tenant_id, dataset_id, id);
CREATE INDEX k_receipt_due ON receipts (state, next_at);

CREATE TABLE receipt_documents (
  receipt_id TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, pass INTEGER NOT NULL DEFAULT 0,
  generations INTEGER NOT NULL DEFAULT 0, tasks INTEGER NOT NULL DEFAULT 0, events INTEGER NOT NULL DEFAULT 0, messages INTEGER NOT NULL DEFAULT 0, uploads INTEGER NOT NULL DEFAULT 0,
  objects INTEGER NOT NULL DEFAULT 0, object_bytes BIGINT NOT NULL DEFAULT 0, chunks INTEGER NOT NULL DEFAULT 0, vectors INTEGER NOT NULL DEFAULT 0, kept TEXT NOT NULL,
  PRIMARY KEY (receipt_id, doc_id)
);
CREATE INDEX k_receipt_pass ON receipt_documents (receipt_id, pass, doc_id);

ALTER TABLE garbage ADD COLUMN receipt_id TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE garbage ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX k_garbage_receipt ON garbage (receipt_id);

-- +goose Down
DROP INDEX k_garbage_receipt;
ALTER TABLE garbage DROP COLUMN counted;
ALTER TABLE garbage DROP COLUMN receipt_id;
DROP TABLE receipt_documents;
DROP TABLE receipts;
