package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
)

// notBefore returns the start time of the jobs that have scheduled tasks: all tasks
// of a job wait for the same time.
func notBefore(db *gorm.DB, jobIDs []string) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	for batch := range slices.Chunk(sortedUnique(jobIDs), 50) {
		parts, args := make([]string, len(batch)), make([]any, len(batch))
		for i, id := range batch {
			parts[i] = fmt.Sprintf("SELECT * FROM (SELECT job_id, run_at FROM tasks WHERE job_id=? AND state='scheduled' LIMIT 1) j%d", i)
			args[i] = id
		}
		rows, err := all[taskRow](db, strings.Join(parts, " UNION ALL "), args...)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[r.JobID] = toTime(r.RunAt)
		}
	}
	return found, nil
}

// addNotBefore sets the start time of queued documents.
func addNotBefore(db *gorm.DB, docs []sheaf.Document) error {
	var jobs []string
	for i := range docs {
		if docs[i].State == sheaf.DocQueued {
			jobs = append(jobs, docs[i].JobID)
		}
	}
	found, err := notBefore(db, jobs)
	for i := range docs {
		if docs[i].State == sheaf.DocQueued {
			docs[i].NotBefore = found[docs[i].JobID]
		}
	}
	return err
}
