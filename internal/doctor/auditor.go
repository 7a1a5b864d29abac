package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

const (
	stepTime  = 5 * time.Second // of slices per step, so that the keeper can do other work
	noteEvery = time.Second     // interval of saving the progress; a kill repeats this much
)

// AuditStore stores the progress of an audit, under a version that fences stale
// writers.
type AuditStore interface {
	AuditState(ctx context.Context) (value string, version int64, err error)
	SwapAuditState(ctx context.Context, version int64, value string) (bool, error)
}

// Auditor periodically examines everything, a few seconds at a time, and repairs
// nothing. Its progress is stored, so the next leader continues from there.
type Auditor struct {
	Config
	State AuditStore
	Every time.Duration // from the end of one audit to the start of the next
	// Ended receives the findings of an audit, only in the keeper that finished it.
	Ended func(ctx context.Context, r *Report)

	now func() time.Time // nil for the real time
}

// auditState is what the store holds.
type auditState struct {
	Began    time.Time `json:"began,omitzero"`
	Ended    time.Time `json:"ended,omitzero"` // of the latest finished one; a new store counts as examined
	Progress *Progress `json:"progress,omitempty"`
}

// Step continues an audit in progress, or starts one that is due, and reports
// whether there is more to do right away.
func (a *Auditor) Step(ctx context.Context) (more bool, err error) {
	now := time.Now
	if a.now != nil {
		now = a.now
	}
	text, version, err := a.State.AuditState(ctx)
	if err != nil {
		return false, err
	}
	var st auditState
	if version > 0 {
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			return false, fmt.Errorf("the stored state of the audit cannot be read: %w", err)
		}
	}
	note := func() (ours bool, err error) {
		text, err := json.Marshal(st)
		if err != nil {
			return false, err
		}
		ours, err = a.State.SwapAuditState(ctx, version, string(text))
		version++
		return ours, err
	}
	if version == 0 {
		st.Ended = now()
		_, err := note()
		return false, err
	}
	if st.Progress == nil {
		if since := now().Sub(st.Ended); since >= 0 && since < a.Every { // in the future: the clock went back
			return false, nil
		}
		st.Began, st.Progress = now(), &Progress{}
	}
	e := begin(a.Config, false, *st.Progress)
	begun := time.Now()
	for noted := begun; !e.at.Done && time.Since(begun) < stepTime; {
		before := e.at
		before.Found = maps.Clone(e.at.Found)
		if err := e.step(ctx); err != nil {
			st.Progress = &before // this step's findings will be found again
			_, nerr := note()
			return false, errors.Join(err, nerr)
		}
		if time.Since(noted) < noteEvery {
			continue
		}
		noted = time.Now()
		st.Progress = &e.at
		if ours, err := note(); err != nil || !ours {
			return false, err
		}
	}
	st.Progress = &e.at
	if e.at.Done {
		st.Progress, st.Ended = nil, now()
	}
	if ours, err := note(); err != nil || !ours {
		return false, err
	}
	if e.at.Done && a.Ended != nil {
		a.Ended(ctx, e.at.report())
	}
	return !e.at.Done, nil
}
