package indexset

import (
	"strings"
	"testing"
)

// What people saved is judged apart from the sentences, of which there are more.
func TestGateJudges(t *testing.T) {
	good := Gate{Samples: 60, MaxLoss: lossOf(60), RecallLive: 0.9, Recall: 0.9, VectorLive: 0.8, Vector: 0.5, Saved: 40, SavedRecallLive: 0.8, SavedRecall: 0.78}
	for _, c := range []struct {
		name   string
		change func(g *Gate)
		says   string // "" for passed
	}{
		{"as good", func(*Gate) {}, ""},
		{"better", func(g *Gate) { g.Recall, g.SavedRecall = 1, 1 }, ""},
		{"sentences lost", func(g *Gate) { g.Recall = 0.8 }, "60 questions"},
		{"saved queries lost", func(g *Gate) { g.SavedRecall = 0.7 }, "40 saved queries"},
		{"one of few lost", func(g *Gate) { g.Saved, g.SavedRecallLive, g.SavedRecall = 4, 1, 0.75 }, ""},
		{"two of few lost", func(g *Gate) { g.Saved, g.SavedRecallLive, g.SavedRecall = 4, 1, 0.5 }, "4 saved queries"},
		{"vectors broken", func(g *Gate) { g.Vector = 0.3 }, "vectors alone"},
		{"ranges missing", func(g *Gate) { g.Missing = 1 }, "1 ranges cannot be read"},
		{"nothing to ask", func(g *Gate) { *g = Gate{MaxLoss: maxLoss} }, ""},
	} {
		g := good
		c.change(&g)
		g.judge()
		if g.Passed != (c.says == "") || !strings.Contains(g.Reason, c.says) {
			t.Errorf("%s: %+v", c.name, g)
		}
	}
}
