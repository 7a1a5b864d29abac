-- +goose Up
-- Addresses that are told when documents and jobs end, and the messages to
-- them, written with what they tell. New tables: code that does not know them
-- is not disturbed.
-- Rollback cost: webhooks are forgotten, with what was not sent yet.

CREATE TABLE webhooks (
  id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, dataset_id TEXT NOT NULL, url TEXT NOT NULL, secret TEXT NOT NULL, events TEXT NOT NULL,
  enabled INTEGER NOT NULL DEFAULT 1, failures INTEGER NOT NULL DEFAULT 0, not_before INTEGER NOT NULL DEFAULT 0, last_error TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
);
CREATE INDEX k_webhook_dataset ON webhooks (dataset_id, id);
CREATE INDEX k_webhook_due ON webhooks (enabled, not_before);

CREATE TABLE webhook_deliveries (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, webhook_id TEXT NOT NULL, tenant_id TEXT NOT NULL, event_id TEXT NOT NULL, event TEXT NOT NULL, job_id TEXT NOT NULL DEFAULT '',
  data TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', attempts INTEGER NOT NULL DEFAULT 0, claims INTEGER NOT NULL DEFAULT 0, status INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
  next_at INTEGER NOT NULL, created_at INTEGER NOT NULL, delivered_at INTEGER NOT NULL DEFAULT 0,
  UNIQUE (webhook_id, event_id)
);
CREATE INDEX k_delivery_due ON webhook_deliveries (webhook_id, state, next_at, seq);
CREATE INDEX k_delivery_list ON webhook_deliveries (webhook_id, seq);

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TABLE webhooks;
