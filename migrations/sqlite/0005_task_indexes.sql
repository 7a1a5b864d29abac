-- +goose Up
-- Each claim and each end of a task writes anew its entry in every index that
-- holds its state. One index finds both leases that ran out and retries that
-- are due (they have no lease), and the one by document holds what the fold
-- sums, which then reads no rows. Code of the version before finds its rows by
-- the same first columns.
-- Rollback cost: the indexes are built anew.
CREATE INDEX k_when ON tasks (state, lease_until, run_at);
CREATE INDEX k_fold ON tasks (doc_id, gen, kind, state, cost, attempts);
DROP INDEX k_due;
DROP INDEX k_lease;
DROP INDEX k_doc;

-- +goose Down
CREATE INDEX k_due ON tasks (state, run_at);
CREATE INDEX k_lease ON tasks (state, lease_until);
CREATE INDEX k_doc ON tasks (doc_id, gen, state);
DROP INDEX k_when;
DROP INDEX k_fold;
