package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
)

// notBefore finds the time that jobs wait for, of those that have tasks which
// wait for one: all of a job wait for the same.
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

// addNotBefore tells of queued documents what time they wait for.
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
