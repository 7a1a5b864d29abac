package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// A job may be open: it takes files from several requests, and does not end before
// it is closed, by its sender or after an idle timeout.

// maxOpenJobs is the maximum number of open jobs per tenant.
const maxOpenJobs = 1000

// OpenJob creates a job that takes documents by AddDocuments until it is closed, or
// until nothing was added for idle. Repeating the call changes nothing.
func (s *changes) OpenJob(ctx context.Context, job sheaf.Job, idle time.Duration) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		n, err := one[int64](tx, "count", "", "SELECT COUNT(*) FROM jobs WHERE open_until>0 AND tenant_id=?", job.TenantID)
		if err != nil {
			return err
		}
		if *n >= maxOpenJobs {
			return limitFailure("open jobs", *n, 1, maxOpenJobs)
		}
		return s.insertJob(tx, job, idle)
	})
}

// AddDocuments is CreateDocuments for an open job of the same dataset, and renews
// its idle timeout. ErrNotFound if the job does not exist, ErrConflict when it is
// closed or would hold more than sheaf.MaxJobDocuments. Adding the same documents
// again, even later, changes nothing more.
func (s *changes) AddDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) (replaced []string, err error) {
	return s.createDocuments(ctx, job, docs, trace, true)
}

// join adds documents to an open job, whose row it locks to serialize additions.
func (s *changes) join(tx *gorm.DB, job sheaf.Job, docs []taskstore.NewDocument) error {
	row, err := s.openJob(tx, job.TenantID, job.DatasetID, job.ID, len(docs), s.d.lock)
	if err != nil {
		return err
	}
	var sum sheaf.JobStatistics
	decode(row.Statistics, &sum)
	sum.Scanned += len(docs)
	files := row.Files
	if sum.Scanned == len(docs) {
		files = firstFiles(job.Files)
	}
	return run(tx, stmt(s.sql("UPDATE jobs SET statistics=?, files=?, open_until=@now+open_for WHERE id=?"), encode(sum), files, row.ID))
}

// JobTakes returns the error that AddDocuments with n new documents would return
// now.
func (s *changes) JobTakes(ctx context.Context, tenantID, datasetID, id string, n int) error {
	_, err := s.openJob(s.write(ctx), tenantID, datasetID, id, n, "")
	return err
}

func (s *changes) openJob(tx *gorm.DB, tenantID, datasetID, id string, n int, lock string) (*jobRow, error) {
	row, err := one[jobRow](tx, "job", id, "SELECT * FROM jobs WHERE id=? AND tenant_id=?"+lock, id, tenantID)
	if err != nil {
		return nil, err
	}
	open, err := first[string](tx, s.sql("SELECT id FROM jobs WHERE id=? AND open_until>@now"), id)
	if err != nil {
		return nil, err
	}
	var sum sheaf.JobStatistics
	decode(row.Statistics, &sum)
	switch {
	case row.DatasetID != datasetID:
		return nil, fmt.Errorf("%w: job %s is of another dataset; open one in this dataset", sheaf.ErrConflict, id)
	case open == nil:
		return nil, fmt.Errorf("%w: job %s takes no more files, since it is closed or nothing was added for long; open another", sheaf.ErrConflict, id)
	case sum.Scanned+n > sheaf.MaxJobDocuments:
		return nil, fmt.Errorf("%w: job %s has %d files, %d more are too many, a job takes %d; open another", sheaf.ErrConflict, id, sum.Scanned, n, sheaf.MaxJobDocuments)
	}
	return row, nil
}

// CloseJob lets an open job end when its documents have ended. A closed job stays
// unchanged.
func (s *webhooks) CloseJob(ctx context.Context, tenantID, id string) error {
	if _, err := s.job(ctx, tenantID, id); err != nil {
		return err
	}
	if _, err := exec(s.write(ctx), "UPDATE jobs SET open_until=0 WHERE id=? AND tenant_id=? AND open_until<>0", id, tenantID); err != nil {
		return err
	}
	return s.AnnounceJob(ctx, tenantID, id) // also when an earlier call failed before this
}

// CloseIdleJobs closes open jobs whose idle timeout has passed.
func (s *webhooks) CloseIdleJobs(ctx context.Context, limit int) (n int, err error) {
	rows, err := all[jobRow](s.write(ctx), s.sql("SELECT id, tenant_id FROM jobs WHERE open_until>0 AND open_until<=@now ORDER BY open_until LIMIT ?"), limit)
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		closed, err := exec(s.write(ctx), s.sql("UPDATE jobs SET open_until=0 WHERE id=? AND open_until>0 AND open_until<=@now"), r.ID)
		if err != nil {
			return n, err
		}
		if n += closed; closed > 0 {
			if err := s.AnnounceJob(ctx, r.TenantID, r.ID); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
