package api

import (
	"encoding/json"
	"net/url"
	"time"

	"sheaf"
)

// Try is one attempt at a task, from its claim to its end.
type Try struct {
	Epoch     int64          `json:"epoch"`
	Worker    string         `json:"worker"`
	StartedAt time.Time      `json:"started_at"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Outcome   string         `json:"outcome,omitempty" doc:"done, failed, dead, lost, released, snoozed, canceled or superseded; empty while it runs"`
	Text      string         `json:"text,omitempty"`
	Failure   *sheaf.Failure `json:"failure,omitempty" doc:"detail holds the last lines of the parser or the stack"`
}

// triesOf folds a task's history, oldest first, into its attempts. What ends
// an attempt from outside is written under the epoch after the attempt's.
func triesOf(events []sheaf.Event) []Try {
	out := []Try{}
	for _, e := range events {
		if e.Kind == sheaf.EventClaimed {
			out = append(out, Try{Epoch: e.Epoch, Worker: e.Worker, StartedAt: e.At})
			continue
		}
		if len(out) == 0 {
			continue
		}
		last := &out[len(out)-1]
		over := !last.EndedAt.IsZero()
		switch e.Kind {
		case sheaf.EventProgress, sheaf.EventMessage, sheaf.EventRetried, sheaf.EventDocument:
			continue
		}
		if over && !(e.Kind == sheaf.EventDead && e.At.Equal(last.EndedAt)) {
			continue // canceled or purged while it waited: no part of an attempt
		}
		last.EndedAt, last.Outcome, last.Text = e.At, e.Kind, e.Text
		if len(e.Detail) > 0 && (e.Kind == sheaf.EventFailed || e.Kind == sheaf.EventDead) {
			var f sheaf.Failure
			if json.Unmarshal(e.Detail, &f) == nil && f.Code != "" {
				last.Failure = &f
			}
		}
	}
	return out
}

// contentPath is where the bytes that the task read can be had; "" where it
// read none.
func contentPath(t *sheaf.Task) string {
	if t.DatasetID == "" || t.DocumentID == "" {
		return ""
	}
	return "/v1/datasets/" + url.PathEscape(t.DatasetID) + "/documents/" + url.PathEscape(t.DocumentID) + "/content"
}
