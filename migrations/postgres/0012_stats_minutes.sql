-- +goose Up
-- What the tasks of a minute were, by tenant, summed by the keeper from the log
-- of events and kept for a month: charts count all of it, not a sample.
-- Rollback cost: the sums, which are made again from the log as far as that
-- reaches back.
CREATE TABLE stats_minutes (
  tenant_id TEXT COLLATE "C" NOT NULL, minute BIGINT NOT NULL, tasks BIGINT NOT NULL, failed BIGINT NOT NULL, cost BIGINT NOT NULL, stage_ms TEXT NOT NULL,
  PRIMARY KEY (tenant_id, minute)
);
CREATE INDEX k_stats_minute ON stats_minutes (minute);

-- +goose Down
DROP TABLE stats_minutes;
