-- +goose Up
-- The first schema. All times are milliseconds since 1970 UTC by the
-- database's own clock; 0 stands for "never" or "not set". Ids are 32 hex
-- characters and compare as bytes. JSON columns are text.
-- Ids and keys collate as bytes (utf8mb4_bin), so that all engines order and
-- compare them alike; JSON is MEDIUMTEXT, because MariaDB has no JSON type of
-- its own; defaults of text are expressions, the only form MySQL takes.
-- Rollback cost: everything; there is nothing before it.

CREATE TABLE tenants (
  id VARCHAR(64) PRIMARY KEY, name VARCHAR(255) NOT NULL, weight INT NOT NULL DEFAULT 1, cap INT NOT NULL DEFAULT 8,
  paused SMALLINT NOT NULL DEFAULT 0, quota MEDIUMTEXT NOT NULL DEFAULT ('{}'), created_at BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE api_keys (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, name VARCHAR(255) NOT NULL, hash VARCHAR(128) NOT NULL UNIQUE, scopes VARCHAR(255) NOT NULL,
  created_at BIGINT NOT NULL, revoked_at BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_key_tenant ON api_keys (tenant_id, id);

CREATE TABLE datasets (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, name VARCHAR(255) NOT NULL, parse_config MEDIUMTEXT NOT NULL,
  paused SMALLINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  UNIQUE (tenant_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE jobs (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL, kind VARCHAR(32) NOT NULL,
  paused SMALLINT NOT NULL DEFAULT 0, statistics MEDIUMTEXT NOT NULL DEFAULT ('{}'), created_at BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_job ON jobs (tenant_id, dataset_id, id);

CREATE TABLE documents (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL, name VARCHAR(512) NOT NULL, media_type VARCHAR(255) NOT NULL,
  size BIGINT NOT NULL, sha256 VARCHAR(64) NOT NULL, blob_key VARCHAR(512) NOT NULL, state VARCHAR(24) NOT NULL, progress DOUBLE NOT NULL DEFAULT 0,
  units INT NOT NULL DEFAULT 0, unit VARCHAR(16) NOT NULL DEFAULT '', gen INT NOT NULL, live_gen INT NOT NULL DEFAULT 0,
  fin_epoch BIGINT NOT NULL DEFAULT 0, chunk_count INT NOT NULL DEFAULT 0, token_count INT NOT NULL DEFAULT 0,
  ledger MEDIUMTEXT NOT NULL DEFAULT ('{}'), failure MEDIUMTEXT NOT NULL DEFAULT (''), warnings MEDIUMTEXT NOT NULL DEFAULT ('[]'),
  parser VARCHAR(64) NOT NULL DEFAULT '', parse_config MEDIUMTEXT NOT NULL, metadata MEDIUMTEXT NOT NULL DEFAULT ('{}'), outline MEDIUMTEXT NOT NULL DEFAULT (''),
  duplicate_of VARCHAR(64) NOT NULL DEFAULT '', job_id VARCHAR(64) NOT NULL, lane SMALLINT NOT NULL DEFAULT 2,
  deleted_at BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  started_at BIGINT NOT NULL DEFAULT 0, finished_at BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_doc_list ON documents (tenant_id, dataset_id, deleted_at, id);
CREATE INDEX k_doc_sha ON documents (tenant_id, dataset_id, sha256);
CREATE INDEX k_doc_state ON documents (state, id);

CREATE TABLE generations (
  doc_id VARCHAR(64) NOT NULL, gen INT NOT NULL, tenant_id VARCHAR(64) NOT NULL, job_id VARCHAR(64) NOT NULL, state VARCHAR(24) NOT NULL,
  parse_config MEDIUMTEXT NOT NULL, parser VARCHAR(64) NOT NULL DEFAULT '', units INT NOT NULL DEFAULT 0, unit VARCHAR(16) NOT NULL DEFAULT '',
  chunk_count INT NOT NULL DEFAULT 0, token_count INT NOT NULL DEFAULT 0, ledger MEDIUMTEXT NOT NULL DEFAULT ('{}'),
  failure MEDIUMTEXT NOT NULL DEFAULT (''), created_at BIGINT NOT NULL, finished_at BIGINT NOT NULL DEFAULT 0, published_at BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (doc_id, gen)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_gen_job ON generations (job_id, doc_id);

CREATE TABLE tasks (
  id VARCHAR(64) PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL, doc_id VARCHAR(64) NOT NULL, job_id VARCHAR(64) NOT NULL, gen INT NOT NULL,
  kind VARCHAR(32) NOT NULL, node VARCHAR(128) NOT NULL DEFAULT '', unit VARCHAR(16) NOT NULL DEFAULT '', from_unit INT NOT NULL DEFAULT 0, to_unit INT NOT NULL DEFAULT 0,
  cost INT NOT NULL DEFAULT 1, lane SMALLINT NOT NULL DEFAULT 2, state VARCHAR(24) NOT NULL, paused SMALLINT NOT NULL DEFAULT 0,
  epoch BIGINT NOT NULL DEFAULT 0, worker_id VARCHAR(128) NOT NULL DEFAULT '', lease_until BIGINT NOT NULL DEFAULT 0,
  run_at BIGINT NOT NULL, enqueued_at BIGINT NOT NULL DEFAULT 0,
  attempts INT NOT NULL DEFAULT 0, fail_count INT NOT NULL DEFAULT 0, lost_count INT NOT NULL DEFAULT 0,
  unmet INT NOT NULL DEFAULT 0, cancel_requested_at BIGINT NOT NULL DEFAULT 0, done_epoch BIGINT NOT NULL DEFAULT 0,
  reuse_key VARCHAR(64) NOT NULL DEFAULT '', digest VARCHAR(64) NOT NULL DEFAULT '', range_id VARCHAR(64) NOT NULL DEFAULT '', artifact_key VARCHAR(512) NOT NULL DEFAULT '',
  chunk_count INT NOT NULL DEFAULT 0, token_count INT NOT NULL DEFAULT 0, reused SMALLINT NOT NULL DEFAULT 0,
  payload MEDIUMTEXT NOT NULL DEFAULT (''), result MEDIUMTEXT NOT NULL DEFAULT (''), failure MEDIUMTEXT NOT NULL DEFAULT (''), failure_code VARCHAR(64) NOT NULL DEFAULT '',
  trace VARCHAR(128) NOT NULL DEFAULT '', created_at BIGINT NOT NULL, started_at BIGINT NOT NULL DEFAULT 0, finished_at BIGINT NOT NULL DEFAULT 0,
  UNIQUE (doc_id, gen, kind, node, from_unit, to_unit)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_feed ON tasks (state, paused, tenant_id, lane, run_at, id);
CREATE INDEX k_due ON tasks (state, run_at);
CREATE INDEX k_lease ON tasks (state, lease_until);
CREATE INDEX k_doc ON tasks (doc_id, gen, state);
CREATE INDEX k_job_tasks ON tasks (job_id, state);
CREATE INDEX k_range ON tasks (range_id);
CREATE INDEX k_reuse ON tasks (tenant_id, reuse_key);

CREATE TABLE task_deps (child_id VARCHAR(64) NOT NULL, parent_id VARCHAR(64) NOT NULL, done SMALLINT NOT NULL DEFAULT 0, PRIMARY KEY (child_id, parent_id)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_parent ON task_deps (parent_id, done);

-- The append-only log. (subject_id, epoch, kind, n) makes a repeated write of
-- an ambiguous transaction a no-op: transitions have n = 0.
CREATE TABLE events (
  seq BIGINT AUTO_INCREMENT PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, dataset_id VARCHAR(64) NOT NULL DEFAULT '', job_id VARCHAR(64) NOT NULL DEFAULT '',
  doc_id VARCHAR(64) NOT NULL DEFAULT '', gen INT NOT NULL DEFAULT 0, task_id VARCHAR(64) NOT NULL DEFAULT '', subject_id VARCHAR(64) NOT NULL,
  epoch BIGINT NOT NULL DEFAULT 0, kind VARCHAR(32) NOT NULL, n BIGINT NOT NULL DEFAULT 0, worker_id VARCHAR(128) NOT NULL DEFAULT '',
  level VARCHAR(8) NOT NULL DEFAULT '', text VARCHAR(1024) NOT NULL DEFAULT '', detail MEDIUMTEXT NOT NULL DEFAULT (''), at BIGINT NOT NULL,
  UNIQUE (subject_id, epoch, kind, n)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_ev_doc ON events (doc_id, seq);
CREATE INDEX k_ev_job ON events (job_id, seq);
CREATE INDEX k_ev_tenant ON events (tenant_id, seq);

CREATE TABLE doc_dirty (doc_id VARCHAR(64) PRIMARY KEY, at BIGINT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE garbage (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, doc_id VARCHAR(64) NOT NULL, range_id VARCHAR(64) NOT NULL DEFAULT '',
  artifact_key VARCHAR(512) NOT NULL DEFAULT '', blob_prefix VARCHAR(512) NOT NULL DEFAULT '', not_before BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE INDEX k_garbage ON garbage (not_before, id);
CREATE TABLE workers (id VARCHAR(128) PRIMARY KEY, status MEDIUMTEXT NOT NULL, started_at BIGINT NOT NULL, seen_at BIGINT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE queue_meta (k VARCHAR(128) PRIMARY KEY, v VARCHAR(512) NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE leases (name VARCHAR(128) PRIMARY KEY, holder VARCHAR(128) NOT NULL, until_at BIGINT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE idempotency (
  tenant_id VARCHAR(64) NOT NULL, k VARCHAR(128) NOT NULL, request_hash VARCHAR(128) NOT NULL, answer MEDIUMTEXT NOT NULL DEFAULT (''), created_at BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, k)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE idempotency;
DROP TABLE leases;
DROP TABLE queue_meta;
DROP TABLE workers;
DROP TABLE garbage;
DROP TABLE doc_dirty;
DROP TABLE events;
DROP TABLE task_deps;
DROP TABLE tasks;
DROP TABLE generations;
DROP TABLE documents;
DROP TABLE jobs;
DROP TABLE datasets;
DROP TABLE api_keys;
DROP TABLE tenants;
