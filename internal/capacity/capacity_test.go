package capacity

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/cputest"
)

// played runs a model to its end and calls after behind each event.
func played(t interface {
	Helper()
	Fatal(...any)
}, c Config, after func(s *sim)) *sim {
	t.Helper()
	s, err := newSim(&c)
	if err != nil {
		t.Fatal(err)
	}
	for s.step() {
		if after != nil {
			after(s)
		}
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	return s
}

// aFleet draws a small fleet and what it is given.
func aFleet(t *rapid.T) Config {
	c := Defaults()
	c.Executors, c.Cores, c.Cap = rapid.IntRange(1, 5).Draw(t, "executors"), rapid.IntRange(1, 4).Draw(t, "cores"), rapid.IntRange(1, 10).Draw(t, "cap")
	c.Window = rapid.SampledFrom([]int{1, 7, 256}).Draw(t, "window")
	c.Tenants, c.Seed, c.NoFeed = rapid.IntRange(1, 20).Draw(t, "tenants"), rapid.Uint64().Draw(t, "seed"), rapid.Bool().Draw(t, "no feed")
	c.Times[executorWait] = rapid.SampledFrom([]float64{0, 30}).Draw(t, "wait")
	for range rapid.IntRange(1, 60).Draw(t, "documents") {
		c.Batch = append(c.Batch, Upload{Tenant: rapid.IntRange(0, c.Tenants-1).Draw(t, "tenant"), Pages: rapid.SampledFrom([]int{1, 5, 12, 13, 100, 600}).Draw(t, "pages"),
			Lane: rapid.SampledFrom(sheaf.Lanes[:]).Draw(t, "lane")})
	}
	return c
}

// Every task is done once, and at the end nothing waits and nothing is held.
func TestEveryTaskIsDoneOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := aFleet(t)
		s := played(t, c, nil)
		tasks, pages := 0, 0.0
		perTenant := make([]int, c.Tenants)
		for _, u := range c.Batch {
			tasks += 2 + (u.Pages+11)/12
			pages += float64(u.Pages)
			perTenant[u.Tenant]++
		}
		if s.out.tasks != tasks || s.out.done != len(c.Batch) || s.out.pages != pages {
			t.Fatalf("%d tasks, %d documents and %g pages; want %d, %d and %g", s.out.tasks, s.out.done, s.out.pages, tasks, len(c.Batch), pages)
		}
		for i := range s.queue.tenants {
			x := &s.queue.tenants[i]
			if x.backlog != 0 || x.unfed != 0 || x.running != 0 || s.out.perTenant[i] != perTenant[i] {
				t.Fatalf("tenant %d has %d tasks left, %d unfed and %d running, and %d of %d documents", i, x.backlog, x.unfed, x.running, s.out.perTenant[i], perTenant[i])
			}
		}
		for _, x := range s.executors {
			if x.slots != s.Slots {
				t.Fatalf("an executor has %d of %d slots at the end", x.slots, s.Slots)
			}
		}
		if s.held != 0 || s.live != 0 || s.hints != 0 || len(s.tasks.free) != len(s.tasks.all) || len(s.docs.free) != len(s.docs.all) {
			t.Fatalf("at the end %d slots, %d documents and %d hints are held", s.held, s.live, s.hints)
		}
	})
}

// No slot is free for longer than an executor takes to look by itself while the
// queue holds a task that no cap keeps back.
func TestNoSlotIsFreeBesideWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		since := math.Inf(1)
		played(t, aFleet(t), func(s *sim) {
			waits := false
			for i := range s.queue.tenants {
				x := &s.queue.tenants[i]
				if x.running > x.cap {
					t.Fatalf("tenant %d runs %d tasks under a cap of %d", i, x.running, x.cap)
				}
				waits = waits || x.running < x.cap && x.backlog > x.unfed && len(s.idle) > 0
			}
			if !waits {
				since = math.Inf(1)
			} else if since = min(since, s.now); s.now-since > 2*pollInterval {
				t.Fatalf("at %g s executors have waited beside work for %g s", s.now, s.now-since)
			}
		})
	})
}

// The documents in the fleet are those that come in a second times the seconds
// that one stays (Little's law), whether it is idle or nearly full.
func TestLittlesLaw(t *testing.T) {
	for _, pages := range []float64{2e6, 2e7} {
		c := Defaults()
		c.Executors, c.Tenants, c.Cap, c.PagesPerDay = 2, 200, 100, pages
		s := played(t, c, nil)
		seconds := s.now - s.warm
		inside, law := s.out.inSystem/seconds, s.out.residence/seconds
		if math.Abs(inside/law-1) > .03 {
			t.Errorf("%g pages a day: %g documents are under way, and by Little's law %g", pages, inside, law)
		}
	}
}

// Tenants that are alike and have more to do than the fleet can are served alike.
func TestEqualTenantsAreServedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Defaults()
		c.Tenants, c.Executors, c.Cap, c.Seed = rapid.IntRange(2, 6).Draw(t, "tenants"), rapid.IntRange(1, 3).Draw(t, "executors"), 100, rapid.Uint64().Draw(t, "seed")
		c.Times[serveDocument], c.Times[servePage], c.Times[databaseDocument] = 0, 0, 0 // all are there at once
		const each = 100
		for i := range c.Tenants * each {
			// Those of the first come first, and are no further for it.
			c.Batch = append(c.Batch, Upload{Tenant: i / each, Pages: 12})
		}
		s, err := newSim(&c)
		if err != nil {
			t.Fatal(err)
		}
		for s.step() && s.out.done < c.Tenants*each/2 {
		}
		for i, n := range s.out.perTenant {
			if n < each/2-each/8 || n > each/2+each/8 {
				t.Fatalf("halfway tenant %d has %d of %d documents: %d", i, n, each, s.out.perTenant)
			}
		}
	})
}

// One executor whose tasks take what they take, one after the other, is done when
// the sums say so.
func TestOneExecutorTakesTheSumOfItsTasks(t *testing.T) {
	c := Defaults()
	c.Cores, c.Slots, c.NoFeed = 1, 1, true
	c.Times = Times{executorPage: 2, executorTask: 1, executorDocument: 3, executorWait: 4, queueLatency: 5, storePage: .5, databaseTask: 2}
	const documents = 20
	for range documents {
		c.Batch = append(c.Batch, Upload{Pages: 24}) // of two ranges
	}
	s := played(t, c, nil)
	claim := 5. + 1 // and what the database takes of it
	plan, parse, finalize := claim+1+3, claim+1+12*2+4+12*.5, claim+1
	// The last end is written when the slot is free again. While that of a plan or
	// of the last range is written nothing else may wait.
	want := documents*(plan+2*parse+finalize)/1000 + 1./1000
	if got := s.out.last; got < want || got > want*1.01 {
		t.Errorf("%d documents take %g s, want %g", documents, got, want)
	}
	if used := s.executors[0].cores.busy; math.Abs(used-documents*(1+3+2*(1+24)+1)/1000.) > 1e-9 {
		t.Errorf("the core was used for %g s", used)
	}
}

// The largest fleet that is documented is predicted within a minute of one core.
func TestLargeFleetInAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("plays minutes of a large fleet")
	}
	c := Defaults()
	c.Executors, c.Tenants, c.PagesPerDay, c.CorpusPages = 100, 10_000, 1e9, 1e9
	before := cputest.Used(t)
	if _, err := Predict(c); err != nil {
		t.Fatal(err)
	}
	if used := cputest.Used(t) - before; used > time.Minute*cputest.Slowdown {
		t.Errorf("it took %v of CPU", used)
	}
}

func TestSameQuestionHasTheSameAnswer(t *testing.T) {
	c := Defaults()
	c.Executors, c.Tenants, c.PagesPerDay = 3, 50, 1e5
	var answers [2]string
	for i := range answers {
		r, err := Predict(c)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		answers[i] = string(text)
	}
	if answers[0] != answers[1] {
		t.Errorf("one answer is %s, and the other %s", answers[0], answers[1])
	}
}

func TestWhatIsNotSimulated(t *testing.T) {
	for says, change := range map[string]func(c *Config){
		"too many to simulate":        func(c *Config) { c.PagesPerDay = 1e12 },
		"tenants is":                  func(c *Config) { c.Tenants = 1e6 },
		"executors is 0":              func(c *Config) { c.Executors = 0 },
		"zipf is":                     func(c *Config) { c.Zipf = math.NaN() },
		"a lane has a share":          func(c *Config) { c.Lanes[1] = -1 },
		"document shares add up to 0": func(c *Config) { c.Sizes = nil },
		"a document size has 0":       func(c *Config) { c.Sizes = []Size{{0, 1}} },
		"a price is":                  func(c *Config) { c.CorePrice = math.Inf(1) },
		"executor.page is":            func(c *Config) { c.Times[executorPage] = -1 },
		"pages-per-day is 0":          func(c *Config) { c.PagesPerDay = 0 },
	} {
		c := Defaults()
		change(&c)
		if _, err := Predict(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want that %s", err, says)
		}
	}
}

func TestServiceTimesAreRead(t *testing.T) {
	times := DefaultTimes()
	if err := times.Read([]byte(`{"executor.page": 9.5, "index.page": 0}`)); err != nil || times[executorPage] != 9.5 || times[indexPage] != 0 {
		t.Errorf("%v, %v", times, err)
	}
	if err := times.Read([]byte(`{"rows": [{"name": "fleet.engines.es", "value": 0.5}, {"name": "search", "value": 3}]}`)); err != nil || times[indexPage] != .5 || times[executorPage] != 9.5 {
		t.Errorf("%v, %v", times, err)
	}
	for text, says := range map[string]string{`3`: "neither a JSON object of names and numbers", `{"x": 1}`: `no service time "x"`, `{"feed.hint": -1}`: "feed.hint is -1"} {
		if err := times.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want that %s", text, err, says)
		}
	}
	named := map[string]bool{}
	for _, i := range times.Inputs() {
		if i.Name == "" || named[i.Name] || i.Unit == "" || i.Source == "" {
			t.Errorf("%+v lacks something, or comes twice", i)
		}
		named[i.Name] = true
	}
}
