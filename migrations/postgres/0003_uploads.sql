-- +goose Up
-- Files on their way in: what is known of them, which pieces are stored and
-- the state of the hash over them, so that any process can go on. A new table:
-- code that does not know it is not disturbed.
-- Rollback cost: uploads that are not complete begin anew.

CREATE TABLE uploads (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL,
  size BIGINT NOT NULL, stored BIGINT NOT NULL DEFAULT 0, pieces TEXT NOT NULL, hash TEXT NOT NULL, spec TEXT NOT NULL,
  fingerprint TEXT COLLATE "C" NOT NULL DEFAULT '', job_id TEXT COLLATE "C" NOT NULL DEFAULT '',
  epoch BIGINT NOT NULL DEFAULT 0, writing INTEGER NOT NULL DEFAULT 0, next_piece INTEGER NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL
);
CREATE INDEX k_upload_list ON uploads (tenant_id, dataset_id, fingerprint, id);
CREATE INDEX k_upload_job ON uploads (tenant_id, job_id);
CREATE INDEX k_upload_life ON uploads (expires_at);

-- +goose Down
DROP TABLE uploads;
