-- +goose Up
-- Files on their way in: what is known of them, which pieces are stored and
-- the state of the hash over them, so that any process can go on. A new table:
-- code that does not know it is not disturbed.
-- Rollback cost: uploads that are not complete begin anew.

CREATE TABLE uploads (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL, doc_id VARCHAR(64) NOT NULL,
  size BIGINT NOT NULL, stored BIGINT NOT NULL DEFAULT 0, pieces MEDIUMTEXT NOT NULL, hash MEDIUMTEXT NOT NULL, spec MEDIUMTEXT NOT NULL,
  fingerprint VARCHAR(128) NOT NULL DEFAULT '', job_id VARCHAR(64) NOT NULL DEFAULT '',
  epoch BIGINT NOT NULL DEFAULT 0, writing INT NOT NULL DEFAULT 0, next_piece INT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_upload_list ON uploads (tenant_id, dataset_id, fingerprint, id);
CREATE INDEX k_upload_job ON uploads (tenant_id, job_id);
CREATE INDEX k_upload_life ON uploads (expires_at);

-- +goose Down
DROP TABLE uploads;
