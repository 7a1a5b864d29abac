// Package sqlstore is the system of record for tenants, datasets, documents and
// tasks, on gorm over SQLite, MySQL (MariaDB) and PostgreSQL. Uploads and the API
// write documents and tasks here, executors claim and finish tasks here, and the
// keeper's loops move what is due. Every change of a task is one guarded statement,
// so that stale writes are rejected.
package sqlstore

// Store is all roles over one database. It is safe for concurrent use, and on MySQL
// and PostgreSQL by many processes.
type Store struct {
	*handle
	*tasks
	*folds
	tenants
	keys
	datasets
	documents
	changes
	deletions
	receipts
	jobs
	estimates
	lifecycle
	feed
	uploads
	webhooks
	flows
	evaluations
	splits
	runs
	edits
	idempotency
	queues
	deadLetters
	events
	garbage
	inventory
	leases
	clock
	sealing
}

// newStore gives each role the handle, and the roles it builds on.
func newStore(h *handle) *Store {
	folding := &folds{handle: h}
	reading, deleting, summing := documents{h}, deletions{h}, jobs{h}
	return &Store{
		handle: h, tasks: newTasks(h, folding, deleting), folds: folding, tenants: tenants{h}, keys: keys{h}, datasets: datasets{h, deleting},
		documents: reading, changes: changes{h}, deletions: deleting, receipts: receipts{h}, jobs: summing, estimates: estimates{h, summing, newSamples(h.sampleAge)},
		lifecycle: lifecycle{h}, feed: feed{handle: h}, uploads: uploads{h}, webhooks: webhooks{h, summing}, flows: flows{h}, evaluations: evaluations{h}, splits: splits{h}, runs: runs{changes{h}}, edits: edits{h}, idempotency: idempotency{h},
		queues: queues{h}, deadLetters: deadLetters{h}, events: events{h, reading}, garbage: garbage{h}, inventory: inventory{h},
		leases: leases{h}, clock: clock{h}, sealing: sealing{h},
	}
}

// The roles, each over the handle. A role that embeds another calls it.
type (
	tenants  struct{ *handle }
	keys     struct{ *handle }
	datasets struct {
		*handle
		deletions
	}
	documents struct{ *handle }
	changes   struct{ *handle }
	deletions struct{ *handle }
	receipts  struct{ *handle }
	jobs      struct{ *handle }
	estimates struct {
		*handle
		jobs
		*samples
	}
	lifecycle struct{ *handle }
	feed      struct {
		*handle
		pools []string // the pools to feed from; nil for tasks without a pool
	}
	uploads  struct{ *handle }
	webhooks struct {
		*handle
		jobs
	}
	flows       struct{ *handle }
	evaluations struct{ *handle }
	splits      struct{ *handle }
	runs        struct{ changes }
	edits       struct{ *handle }
	idempotency struct{ *handle }
	queues      struct{ *handle }
	deadLetters struct{ *handle }
	events      struct {
		*handle
		documents
	}
	garbage   struct{ *handle }
	inventory struct{ *handle }
	leases    struct{ *handle }
	clock     struct{ *handle }
	sealing   struct{ *handle }
)
