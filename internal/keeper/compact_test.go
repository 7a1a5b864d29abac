package keeper

import (
	"context"
	"testing"

	"sheaf/internal/index"
)

type compacting struct{ index.Index }

func (compacting) Compact(context.Context) error { return nil }

// Only an index whose engine leaves deleted words in its files is compacted,
// and not by a keeper that was told never to.
func TestIndexIsCompactedWhereItMustBe(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want bool
	}{{Config{Index: compacting{}, CompactEvery: 1}, true}, {Config{Index: compacting{}}, false}, {Config{CompactEvery: 1}, false}} {
		has := false
		for _, l := range New(c.cfg).loops {
			has = has || l.name == "compact"
		}
		if has != c.want {
			t.Errorf("%+v: %v", c.cfg, has)
		}
	}
}
