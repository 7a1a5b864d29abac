-- +goose Up
-- The first schema. All times are milliseconds since 1970 UTC by the
-- database's own clock; 0 stands for "never" or "not set". Ids are 32 hex
-- characters and compare as bytes. JSON columns are text.
-- Ids and keys collate as bytes ("C"), so that all engines order and compare
-- them alike. JSON is text: nothing is ever asked of it inside the database.
-- Rollback cost: everything; there is nothing before it.

CREATE TABLE tenants (
  id TEXT COLLATE "C" PRIMARY KEY, name TEXT COLLATE "C" NOT NULL, weight INTEGER NOT NULL DEFAULT 1, cap INTEGER NOT NULL DEFAULT 8,
  paused SMALLINT NOT NULL DEFAULT 0, quota TEXT NOT NULL DEFAULT '{}', created_at BIGINT NOT NULL
);
CREATE TABLE api_keys (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, hash TEXT NOT NULL UNIQUE, scopes TEXT NOT NULL,
  created_at BIGINT NOT NULL, revoked_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX k_key_tenant ON api_keys (tenant_id, id);

CREATE TABLE datasets (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, parse_config TEXT NOT NULL,
  paused SMALLINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  UNIQUE (tenant_id, name)
);

CREATE TABLE jobs (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL,
  paused SMALLINT NOT NULL DEFAULT 0, statistics TEXT NOT NULL DEFAULT '{}', created_at BIGINT NOT NULL
);
CREATE INDEX k_job ON jobs (tenant_id, dataset_id, id);

CREATE TABLE documents (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, media_type TEXT NOT NULL,
  size BIGINT NOT NULL, sha256 TEXT NOT NULL, blob_key TEXT NOT NULL, state TEXT COLLATE "C" NOT NULL, progress DOUBLE PRECISION NOT NULL DEFAULT 0,
  units INTEGER NOT NULL DEFAULT 0, unit TEXT NOT NULL DEFAULT '', gen INTEGER NOT NULL, live_gen INTEGER NOT NULL DEFAULT 0,
  fin_epoch BIGINT NOT NULL DEFAULT 0, chunk_count INTEGER NOT NULL DEFAULT 0, token_count INTEGER NOT NULL DEFAULT 0,
  ledger TEXT NOT NULL DEFAULT '{}', failure TEXT NOT NULL DEFAULT '', warnings TEXT NOT NULL DEFAULT '[]',
  parser TEXT NOT NULL DEFAULT '', parse_config TEXT NOT NULL, metadata TEXT NOT NULL DEFAULT '{}', outline TEXT NOT NULL DEFAULT '',
  duplicate_of TEXT COLLATE "C" NOT NULL DEFAULT '', job_id TEXT COLLATE "C" NOT NULL, lane SMALLINT NOT NULL DEFAULT 2,
  deleted_at BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
  started_at BIGINT NOT NULL DEFAULT 0, finished_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX k_doc_list ON documents (tenant_id, dataset_id, deleted_at, id);
CREATE INDEX k_doc_sha ON documents (tenant_id, dataset_id, sha256);
CREATE INDEX k_doc_state ON documents (state, id);

CREATE TABLE generations (
  doc_id TEXT COLLATE "C" NOT NULL, gen INTEGER NOT NULL, tenant_id TEXT COLLATE "C" NOT NULL, job_id TEXT COLLATE "C" NOT NULL, state TEXT COLLATE "C" NOT NULL,
  parse_config TEXT NOT NULL, parser TEXT NOT NULL DEFAULT '', units INTEGER NOT NULL DEFAULT 0, unit TEXT NOT NULL DEFAULT '',
  chunk_count INTEGER NOT NULL DEFAULT 0, token_count INTEGER NOT NULL DEFAULT 0, ledger TEXT NOT NULL DEFAULT '{}',
  failure TEXT NOT NULL DEFAULT '', created_at BIGINT NOT NULL, finished_at BIGINT NOT NULL DEFAULT 0, published_at BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (doc_id, gen)
);
CREATE INDEX k_gen_job ON generations (job_id, doc_id);

CREATE TABLE tasks (
  id TEXT COLLATE "C" PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, job_id TEXT COLLATE "C" NOT NULL, gen INTEGER NOT NULL,
  kind TEXT COLLATE "C" NOT NULL, node TEXT COLLATE "C" NOT NULL DEFAULT '', unit TEXT NOT NULL DEFAULT '', from_unit INTEGER NOT NULL DEFAULT 0, to_unit INTEGER NOT NULL DEFAULT 0,
  cost INTEGER NOT NULL DEFAULT 1, lane SMALLINT NOT NULL DEFAULT 2, state TEXT COLLATE "C" NOT NULL, paused SMALLINT NOT NULL DEFAULT 0,
  epoch BIGINT NOT NULL DEFAULT 0, worker_id TEXT COLLATE "C" NOT NULL DEFAULT '', lease_until BIGINT NOT NULL DEFAULT 0,
  run_at BIGINT NOT NULL, enqueued_at BIGINT NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0, fail_count INTEGER NOT NULL DEFAULT 0, lost_count INTEGER NOT NULL DEFAULT 0,
  unmet INTEGER NOT NULL DEFAULT 0, cancel_requested_at BIGINT NOT NULL DEFAULT 0, done_epoch BIGINT NOT NULL DEFAULT 0,
  reuse_key TEXT COLLATE "C" NOT NULL DEFAULT '', digest TEXT NOT NULL DEFAULT '', range_id TEXT COLLATE "C" NOT NULL DEFAULT '', artifact_key TEXT NOT NULL DEFAULT '',
  chunk_count INTEGER NOT NULL DEFAULT 0, token_count INTEGER NOT NULL DEFAULT 0, reused SMALLINT NOT NULL DEFAULT 0,
  payload TEXT NOT NULL DEFAULT '', result TEXT NOT NULL DEFAULT '', failure TEXT NOT NULL DEFAULT '', failure_code TEXT NOT NULL DEFAULT '',
  trace TEXT NOT NULL DEFAULT '', created_at BIGINT NOT NULL, started_at BIGINT NOT NULL DEFAULT 0, finished_at BIGINT NOT NULL DEFAULT 0,
  UNIQUE (doc_id, gen, kind, node, from_unit, to_unit)
);
CREATE INDEX k_feed ON tasks (state, paused, tenant_id, lane, run_at, id);
CREATE INDEX k_due ON tasks (state, run_at);
CREATE INDEX k_lease ON tasks (state, lease_until);
CREATE INDEX k_doc ON tasks (doc_id, gen, state);
CREATE INDEX k_job_tasks ON tasks (job_id, state);
CREATE INDEX k_range ON tasks (range_id);
CREATE INDEX k_reuse ON tasks (tenant_id, reuse_key);

CREATE TABLE task_deps (child_id TEXT COLLATE "C" NOT NULL, parent_id TEXT COLLATE "C" NOT NULL, done SMALLINT NOT NULL DEFAULT 0, PRIMARY KEY (child_id, parent_id));
CREATE INDEX k_parent ON task_deps (parent_id, done);

-- The append-only log. (subject_id, epoch, kind, n) makes a repeated write of
-- an ambiguous transaction a no-op: transitions have n = 0.
CREATE TABLE events (
  seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, dataset_id TEXT COLLATE "C" NOT NULL DEFAULT '', job_id TEXT COLLATE "C" NOT NULL DEFAULT '',
  doc_id TEXT COLLATE "C" NOT NULL DEFAULT '', gen INTEGER NOT NULL DEFAULT 0, task_id TEXT COLLATE "C" NOT NULL DEFAULT '', subject_id TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL DEFAULT 0, kind TEXT COLLATE "C" NOT NULL, n BIGINT NOT NULL DEFAULT 0, worker_id TEXT COLLATE "C" NOT NULL DEFAULT '',
  level TEXT NOT NULL DEFAULT '', text TEXT NOT NULL DEFAULT '', detail TEXT NOT NULL DEFAULT '', at BIGINT NOT NULL,
  UNIQUE (subject_id, epoch, kind, n)
);
CREATE INDEX k_ev_doc ON events (doc_id, seq);
CREATE INDEX k_ev_job ON events (job_id, seq);
CREATE INDEX k_ev_tenant ON events (tenant_id, seq);

CREATE TABLE doc_dirty (doc_id TEXT COLLATE "C" PRIMARY KEY, at BIGINT NOT NULL);
CREATE TABLE garbage (
  id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, tenant_id TEXT COLLATE "C" NOT NULL, doc_id TEXT COLLATE "C" NOT NULL, range_id TEXT COLLATE "C" NOT NULL DEFAULT '',
  artifact_key TEXT NOT NULL DEFAULT '', blob_prefix TEXT NOT NULL DEFAULT '', not_before BIGINT NOT NULL
);
CREATE INDEX k_garbage ON garbage (not_before, id);
CREATE TABLE workers (id TEXT COLLATE "C" PRIMARY KEY, status TEXT NOT NULL, started_at BIGINT NOT NULL, seen_at BIGINT NOT NULL);
CREATE TABLE queue_meta (k TEXT COLLATE "C" PRIMARY KEY, v TEXT NOT NULL);
CREATE TABLE leases (name TEXT COLLATE "C" PRIMARY KEY, holder TEXT NOT NULL, until_at BIGINT NOT NULL);
CREATE TABLE idempotency (
  tenant_id TEXT COLLATE "C" NOT NULL, k TEXT COLLATE "C" NOT NULL, request_hash TEXT NOT NULL, answer TEXT NOT NULL DEFAULT '', created_at BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, k)
);

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
