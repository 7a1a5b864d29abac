package executor

import (
	"strings"
	"testing"
	"time"

	"sheaf/internal/flow"
)

// A flow in the mode auto has tasks for its nodes once what they take is measured and
// much, and not for one that is skipped.
func TestModeFollowsWhatNodesTake(t *testing.T) {
	f := &flow.Flow{Mode: flow.ModeAuto, Nodes: []flow.Node{{ID: "a", Kind: "parse"}, {ID: "b", Kind: "chunk"}, {ID: "facts", Kind: "extract"}, {ID: "ask", Kind: "http"}, {ID: "z", Kind: "index"}, {ID: "tree", Kind: "raptor"}}}
	p := &program{Flow: f}
	for _, c := range []struct {
		times   map[string]time.Duration
		skipped []string
		mode    flow.Mode
		says    string
	}{
		{nil, nil, flow.ModeWhole, "at most 8 nodes"},
		{map[string]time.Duration{"parse": time.Hour, "raptor": time.Hour, "extract": 10 * time.Second, "http": 10 * time.Second}, nil, flow.ModeWhole, "at most"},
		{map[string]time.Duration{"extract": 20 * time.Second, "http": 21 * time.Second}, nil, flow.ModeNodes, "took 41s a range of late, more than 30s"},
		{map[string]time.Duration{"extract": 20 * time.Second, "http": 21 * time.Second}, []string{"ask"}, flow.ModeWhole, "at most"},
	} {
		if mode, reason := p.mode(c.skipped, c.times); mode != c.mode || !strings.Contains(reason, c.says) {
			t.Errorf("%v without %v: %s, %q, want %s, %q", c.times, c.skipped, mode, reason, c.mode, c.says)
		}
	}
}
