package ingest

import (
	"sync"
	"time"
)

// A warning about a setting is repeated by each round of the keeper until someone
// corrects it. warnEvery is how often it reaches the log, and maxWarned how many
// subjects are remembered.
const (
	warnEvery = time.Hour
	maxWarned = 10_000
)

// seldom limits repeated warnings to one per subject and warnEvery. The zero value
// is ready to use.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due reports whether the warning about a subject should be logged now.
func (s *seldom) due(subject string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, ok := s.last[subject]; ok && now.Sub(at) < warnEvery {
		return false
	}
	if s.last == nil || len(s.last) >= maxWarned {
		s.last = map[string]time.Time{}
	}
	s.last[subject] = now
	return true
}
