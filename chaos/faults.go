package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"sheaf/chaos/proxy"
)

// fault is one kind of damage. do injects it and returns when it is over.
type fault struct {
	name   string
	weight int
	do     func(ctx context.Context, r *rand.Rand) error
}

// injector draws faults from a seed and injects them, several concurrently.
type injector struct {
	e *engines
	f *fleet
	l *load
	w *watchers
	// running is the run's own context: watchers outlive the faults.
	running context.Context
	begun   time.Time
	mu      sync.Mutex
	busy    map[string]bool // what is damaged now is not damaged again
	counts  map[string]int
	failed  map[string]int // faults that could not be injected
	kills   []kill
	waits   waits
	log     []injected
}

// kill records the end of an executor, for measuring recovery.
type kill struct {
	pid int
	at  time.Time
}

// injected is one line of the run's record.
type injected struct {
	AtMS  int64  `json:"at_ms"`
	MS    int64  `json:"ms"`
	Fault string `json:"fault"`
	Error string `json:"error,omitempty"`
}

// kinds lists every fault with its relative frequency.
func (in *injector) kinds() []fault {
	var out []fault
	add := func(name string, weight int, do func(ctx context.Context, r *rand.Rand) error) {
		out = append(out, fault{name, weight, do})
	}
	for role, weight := range map[string]int{"executor": 8, "keeper": 4, "serve": 3} { // sorted below
		add("kill "+role, weight, func(ctx context.Context, r *rand.Rand) error { return in.kill(ctx, r, role) })
		add("terminate "+role, weight/2, func(ctx context.Context, r *rand.Rand) error { return in.terminate(ctx, r, role) })
	}
	// A stopped executor is a zombie when it continues: its lease has expired. A
	// stopped leading keeper still believes that it leads: there are two leaders.
	add("stop executor", 6, func(ctx context.Context, r *rand.Rand) error {
		return in.freeze(ctx, r, "executor", lease+between(r, 1, 4))
	})
	add("stop keeper", 4, func(ctx context.Context, r *rand.Rand) error {
		return in.freeze(ctx, r, "keeper", leaderTTL+between(r, 1, 3))
	})
	add("stop serve", 2, func(ctx context.Context, r *rand.Rand) error { return in.freeze(ctx, r, "serve", between(r, 1, 3)) })
	add("kill redis", 3, func(ctx context.Context, r *rand.Rand) error { return in.restart(ctx, in.e.redis, between(r, 0, 2)) })
	add("flush redis", 3, func(ctx context.Context, r *rand.Rand) error { return in.e.rdb.FlushAll(ctx).Err() })
	add("kill mysql", 2, func(ctx context.Context, r *rand.Rand) error { return in.restart(ctx, in.e.mysql, between(r, 0, 2)) })
	for name := range in.e.proxies { // sorted below
		add("delay "+name, 3, func(ctx context.Context, r *rand.Rand) error {
			return in.net(ctx, name, proxy.Delay, time.Duration(20+r.IntN(180))*time.Millisecond, between(r, 1, 4))
		})
		add("cut "+name, 3, func(ctx context.Context, r *rand.Rand) error {
			return in.net(ctx, name, proxy.Cut, 0, between(r, 0, 3))
		})
		add("drop replies "+name, 3, func(ctx context.Context, r *rand.Rand) error {
			return in.net(ctx, name, proxy.DropReplies, 0, between(r, 0, 3))
		})
	}
	for name, status := range map[string]int{"refuse key": http.StatusUnauthorized, "limit embedder": http.StatusTooManyRequests} {
		add(name, 3, func(ctx context.Context, r *rand.Rand) error {
			if _, err := in.take(ctx, "embedder"); err != nil {
				return err
			}
			defer in.give("embedder")
			in.e.embed.refuseFor(ctx, status, between(r, 1, 4))
			return nil
		})
	}
	add("slow watchers", 3, func(ctx context.Context, _ *rand.Rand) error {
		if in.l.pick() == nil {
			return fmt.Errorf("no document was accepted yet")
		}
		for range 6 {
			if d := in.l.pick(); d != nil {
				in.w.follow(in.running, d)
			}
		}
		return nil
	})
	add("deaf watchers", 3, func(ctx context.Context, r *rand.Rand) error {
		return in.w.deaf(ctx, tenants[r.IntN(len(tenants))], between(r, 2, 6))
	})
	if in.f.full != "" {
		add("fill disk", 3, in.fill)
	}
	add("cancel", 6, func(ctx context.Context, r *rand.Rand) error { return in.act(ctx, in.l.cancel) })
	add("reparse", 5, func(ctx context.Context, r *rand.Rand) error { return in.act(ctx, in.l.reparse) })
	add("delete", 4, func(ctx context.Context, r *rand.Rand) error { return in.act(ctx, in.l.remove) })
	slices.SortFunc(out, func(a, b fault) int { return cmp.Compare(a.name, b.name) }) // the same seed draws the same faults
	return out
}

func between(r *rand.Rand, from, to int) time.Duration {
	return time.Duration(from)*time.Second + time.Duration(r.Int64N(int64(to-from)*int64(time.Second)))
}

// plan draws n faults: each kind once, as far as n allows, then by weight.
func plan(kinds []fault, n int, r *rand.Rand) []fault {
	var out []fault
	for _, i := range r.Perm(len(kinds)) {
		out = append(out, kinds[i])
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for len(out) < n {
		at := r.IntN(total)
		for _, k := range kinds {
			if at -= k.weight; at < 0 {
				out = append(out, k)
				break
			}
		}
	}
	return out[:n]
}

// inject runs the plan, one fault per mean on average, and waits for the last to end.
func (in *injector) inject(ctx context.Context, faults []fault, mean time.Duration, seed uint64) {
	var wg sync.WaitGroup
	r := rand.New(rand.NewPCG(seed, 2))
	for i, k := range faults {
		if ctx.Err() != nil {
			break
		}
		own := rand.New(rand.NewPCG(seed, uint64(i)+100))
		wg.Go(func() {
			begun := time.Now()
			err := k.do(ctx, own)
			line := injected{AtMS: begun.Sub(in.begun).Milliseconds(), MS: time.Since(begun).Milliseconds(), Fault: k.name}
			in.mu.Lock()
			defer in.mu.Unlock()
			if err != nil {
				line.Error = err.Error()
				in.failed[k.name]++
			} else {
				in.counts[k.name]++
			}
			in.log = append(in.log, line)
		})
		pause(ctx, time.Duration((0.5+r.Float64())*float64(mean)))
	}
	wg.Wait()
}

// injected counts the faults that were injected.
func (in *injector) injected() (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, times := range in.counts {
		n += times
	}
	return n
}

// take marks one of the names as damaged and returns its index, waiting if all are;
// give ends that.
func (in *injector) take(ctx context.Context, names ...string) (int, error) {
	for ctx.Err() == nil {
		in.mu.Lock()
		for i, n := range names {
			if !in.busy[n] {
				in.busy[n] = true
				in.mu.Unlock()
				return i, nil
			}
		}
		in.mu.Unlock()
		pause(ctx, 100*time.Millisecond)
	}
	return 0, ctx.Err()
}

func (in *injector) give(name string) {
	in.mu.Lock()
	delete(in.busy, name)
	in.mu.Unlock()
}

// victim takes a process of the role.
func (in *injector) victim(ctx context.Context, r *rand.Rand, role string) (*process, error) {
	all := in.f.of(role)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	i, err := in.take(ctx, names...)
	if err != nil {
		return nil, err
	}
	return all[i], nil
}

func (in *injector) kill(ctx context.Context, r *rand.Rand, role string) error {
	p, err := in.victim(ctx, r, role)
	if err != nil {
		return err
	}
	defer in.give(p.name)
	at := time.Now()
	pid, done := p.signal(syscall.SIGKILL)
	<-done
	if role == "executor" {
		in.mu.Lock()
		in.kills = append(in.kills, kill{pid, at})
		in.mu.Unlock()
	}
	return nil
}

func (in *injector) terminate(ctx context.Context, r *rand.Rand, role string) error {
	p, err := in.victim(ctx, r, role)
	if err != nil {
		return err
	}
	defer in.give(p.name)
	_, done := p.signal(syscall.SIGTERM)
	select {
	case <-done:
		return nil
	case <-time.After(40 * time.Second):
		in.l.violation("I17: %s did not end within 40 s of SIGTERM", p.name)
		_, _ = p.signal(syscall.SIGKILL)
		return nil
	}
}

func (in *injector) freeze(ctx context.Context, r *rand.Rand, role string, d time.Duration) error {
	p, err := in.victim(ctx, r, role)
	if err != nil {
		return err
	}
	defer in.give(p.name)
	_, _ = p.signal(syscall.SIGSTOP)
	pause(ctx, d)
	_, _ = p.signal(syscall.SIGCONT)
	return nil
}

func (in *injector) restart(ctx context.Context, s *server, away time.Duration) error {
	if _, err := in.take(ctx, s.name); err != nil {
		return err
	}
	defer in.give(s.name)
	s.kill()
	pause(ctx, away)
	if err := s.start(); err != nil {
		return err
	}
	if s == in.e.redis {
		return until(context.WithoutCancel(ctx), 20*time.Second, "Redis", func() error { return in.e.rdb.Ping(context.WithoutCancel(ctx)).Err() })
	}
	return until(context.WithoutCancel(ctx), 60*time.Second, "MariaDB", func() error { return in.e.db.PingContext(context.WithoutCancel(ctx)) })
}

func (in *injector) net(ctx context.Context, name string, mode proxy.Mode, delay, d time.Duration) error {
	if _, err := in.take(ctx, "proxy "+name); err != nil {
		return err
	}
	defer in.give("proxy " + name)
	in.e.proxies[name].Set(mode, delay)
	pause(ctx, d)
	in.e.proxies[name].Set(proxy.Pass, 0)
	return nil
}

// fill exhausts the free space on the file system of executor 0's data for a while.
func (in *injector) fill(ctx context.Context, r *rand.Rand) error {
	if _, err := in.take(ctx, "disk"); err != nil {
		return err
	}
	defer in.give("disk")
	path := filepath.Join(in.f.full, "filler")
	defer os.Remove(path)
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("filling the disk: %w", err)
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for range 1 << 10 {
		if _, err := file.Write(block); err != nil {
			break // ENOSPC: as intended
		}
	}
	pause(ctx, between(r, 2, 5))
	return nil
}

// act does something to a document whose tasks may be ending at that moment.
func (in *injector) act(ctx context.Context, do func(context.Context, *document) error) error {
	d := in.l.pick()
	if d == nil {
		return fmt.Errorf("no document was accepted yet")
	}
	return do(ctx, d)
}
