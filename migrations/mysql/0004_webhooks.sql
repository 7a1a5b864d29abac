-- +goose Up
-- Addresses that are told when documents and jobs end, and the messages to
-- them, written with what they tell. New tables: code that does not know them
-- is not disturbed.
-- Rollback cost: webhooks are forgotten, with what was not sent yet.

CREATE TABLE webhooks (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL, url TEXT NOT NULL, secret TEXT NOT NULL, events TEXT NOT NULL,
  enabled INT NOT NULL DEFAULT 1, failures INT NOT NULL DEFAULT 0, not_before BIGINT NOT NULL DEFAULT 0, last_error TEXT NOT NULL,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_webhook_dataset ON webhooks (dataset_id, id);
CREATE INDEX k_webhook_due ON webhooks (enabled, not_before);

CREATE TABLE webhook_deliveries (
  seq BIGINT AUTO_INCREMENT PRIMARY KEY, webhook_id VARCHAR(64) NOT NULL, tenant_id VARCHAR(64) NOT NULL, event_id VARCHAR(128) NOT NULL, event VARCHAR(64) NOT NULL, job_id VARCHAR(64) NOT NULL DEFAULT '',
  data TEXT NOT NULL, state VARCHAR(64) NOT NULL DEFAULT 'pending', attempts INT NOT NULL DEFAULT 0, claims INT NOT NULL DEFAULT 0, status INT NOT NULL DEFAULT 0, error TEXT NOT NULL,
  next_at BIGINT NOT NULL, created_at BIGINT NOT NULL, delivered_at BIGINT NOT NULL DEFAULT 0,
  UNIQUE (webhook_id, event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_delivery_due ON webhook_deliveries (webhook_id, state, next_at, seq);
CREATE INDEX k_delivery_list ON webhook_deliveries (webhook_id, seq);

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TABLE webhooks;
