package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sheaf/chaos/proxy"
)

// followed is how soon readiness must report that a dependency is down, or back: a
// probe checks it once a second, for three seconds at most.
const followed = 10 * time.Second

// outage is a failed dependency, and how it must be reported.
type outage struct {
	name     string
	begin    func()
	end      func()
	away     []string // names in /readyz
	serve    int      // status of /readyz for the API, and for executors
	executor int
}

// outages disables the fleet's dependencies, one after the other and with nothing
// else broken.
func (t *trial) outages() []outage {
	cut := func(names ...string) (begin, end func()) {
		set := func(mode proxy.Mode) func() {
			return func() {
				for _, name := range names {
					t.e.proxies[name].Set(mode, 0)
				}
			}
		}
		return set(proxy.Cut), set(proxy.Pass)
	}
	others, back := cut("redis", "s3", "es", "embedder")
	store, storeBack := cut("mysql")
	return []outage{
		{"a key that the embedding server refuses", func() { t.e.embed.refuse.Store(http.StatusUnauthorized) }, func() { t.e.embed.refuse.Store(0) }, []string{"embedder"}, 200, 200},
		{"everything but the database away", others, back, []string{"queue", "blobs", "index", "embedder"}, 200, 503},
		{"the database away", store, storeBack, []string{"store"}, 503, 503},
	}
}

// measureOutages checks that readiness follows each outage in every API process,
// that a refused key costs no task an attempt, and that work resumes automatically
// once it is cured.
func (t *trial) measureOutages(ctx context.Context, r *record) error {
	for _, o := range t.outages() {
		o.begin()
		begun := time.Now()
		err := t.ready(ctx, o, true)
		r.ReadyFollows = max(r.ReadyFollows, time.Since(begun).Seconds())
		if err == nil && o.away[0] == "embedder" {
			err = t.refused(ctx, r, o)
		} else {
			o.end()
		}
		if err == nil {
			begun = time.Now()
			err = t.ready(ctx, o, false)
			r.ReadyFollows = max(r.ReadyFollows, time.Since(begun).Seconds())
		}
		if err != nil {
			o.end()
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

// ready waits until every API process reports the dependencies of o as down, or back.
func (t *trial) ready(ctx context.Context, o outage, away bool) error {
	ask := func(url, role string) (status int, oks map[string]bool, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz?role="+role, nil)
		if err != nil {
			return 0, nil, err
		}
		resp, err := t.l.http.Do(req)
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		var body struct {
			Dependencies map[string]struct {
				OK bool `json:"ok"`
			} `json:"dependencies"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			return 0, nil, err
		}
		oks = map[string]bool{}
		for name, d := range body.Dependencies {
			oks[name] = d.OK
		}
		return resp.StatusCode, oks, nil
	}
	return until(ctx, 3*followed, "readiness", func() error {
		for _, p := range t.f.of("serve") {
			for role, want := range map[string]int{"serve": o.serve, "executor": o.executor} {
				status, oks, err := ask(p.url, role)
				if err != nil {
					return err
				}
				if !away {
					want = http.StatusOK
				}
				for _, name := range o.away {
					if oks[name] == away {
						return fmt.Errorf("%s says that the %s works: %v", p.name, name, oks[name])
					}
				}
				if status != want {
					return fmt.Errorf("%s answers %d for the role %s, not %d: %v", p.name, status, role, want, oks)
				}
			}
		}
		return nil
	})
}

// refused sends documents while the embedding server rejects the key, cures it once
// their tasks wait, and measures until all are done. It must not cost any attempts.
func (t *trial) refused(ctx context.Context, r *record, o outage) error {
	var docs []*document
	for i := range 2 * len(tenants) {
		d, err := t.l.sendTrial(ctx, &document{tenant: tenants[i%len(tenants)], token: t.l.word()}, 8, false)
		if err != nil {
			return err
		}
		docs = append(docs, d)
	}
	count := func(query string) error {
		for _, d := range docs {
			var n int
			if err := t.e.db.QueryRowContext(ctx, query, d.id).Scan(&n); err != nil || n > 0 {
				return fmt.Errorf("%d tasks of %s (%v)", n, d.id, err)
			}
		}
		return nil
	}
	// All are planned, and none can proceed.
	if err := until(ctx, 30*time.Second, "tasks that wait for the embedder", func() error {
		return count("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND (kind='plan' AND state<>'done' OR kind='parse' AND state IN ('running','done'))")
	}); err != nil {
		return err
	}
	o.end()
	begun := time.Now()
	if err := until(ctx, 3*promised, "documents that were held up", func() error {
		return count("SELECT COUNT(*) FROM documents WHERE id=? AND state<>'succeeded'")
	}); err != nil {
		return err
	}
	r.CuredS = time.Since(begun).Seconds()
	if err := count("SELECT COALESCE(SUM(fail_count+lost_count),0) FROM tasks WHERE doc_id=?"); err != nil {
		t.l.violation("I5: a key that was refused cost attempts: %v", err)
	}
	return nil
}
