// Package redisstream is the queue of a fleet, between the keeper, which publishes
// hints of pending tasks, and executors on many hosts, which take them. Each tenant
// and lane has a bounded Redis stream; a scheduler beside the streams decides whose
// turn it is. Everything in Redis may be lost at any moment: the tasks are in the
// database, and the keeper publishes them again.
package redisstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/batching"
	"sheaf/internal/queue"
)

var _ queue.Queue = (*Queue)(nil)

// Config configures a queue. All processes of a fleet must agree on Redis, Lanes and
// Prefix.
type Config struct {
	Redis RedisOptions
	// Lanes gives lanes a Redis of their own, for their streams and their part of the
	// schedule, so that interactive work never waits behind a backfill. The first lane
	// with work is then served first for all tenants, and two processes that take from
	// two of them at the same moment may together exceed a tenant's cap by what they
	// take. Wake-ups, cancel signals and leases stay in Redis. While one of them is
	// down the others' lanes continue: without wake-ups if Redis is down, and without
	// counting tasks running through the one that is.
	Lanes map[sheaf.Lane]RedisOptions

	Prefix     string        // prefix of all keys; without braces
	Window     int           // maximum hints per tenant and lane, including taken ones; 0 means 256
	DefaultCap int           // for tenants without a share; 0 means 8
	AgeAfter   time.Duration // a hint that waited longer in its stream counts one lane higher; 0 means 10 min, negative means never
	// ConsumerTTL is how long Redis remembers a worker without activity; 0 means 1 h.
	// Its hints are recovered long before.
	ConsumerTTL time.Duration
	Log         *slog.Logger // nil means slog.Default
}

const (
	group       = "g"
	stride      = 1000                 // pass per unit of cost at weight 1
	maxBlock    = time.Second          // longest single blocking read: how late a blocked connection notices that it is no longer needed
	maxPicks    = 256                  // maximum tenants that one Take examines
	span        = 1 << 43              // between the scores of two phases: places are in ms since 1970, until the year 2248
	batch       = 500                  // tenants per round trip of a sweep; also maximum acks per round trip
	ackTimeout  = 5 * time.Second      // per batch of acks; the client gives up sooner
	cancelLen   = 10_000               // approximate maximum length of the cancel stream
	longAgo     = 400 * time.Hour      // longer than any requested idle time
	changePause = 5 * time.Millisecond // minimum interval between changes that a subscriber receives; those in between are merged
)

// Queue implements queue.Queue over Redis 6.2 or newer, or Valkey.
type Queue struct {
	cfg    Config
	main   *shard
	shards []*shard // in order of their first lane

	acks  *batching.Group[spent, error]
	dones *batching.Group[ended, error]

	mu       sync.Mutex
	cursors  map[string]string              // of XAUTOCLAIM, by stream, while a search is in progress
	touched  map[string]map[string]struct{} // worker → tenants it took from
	suspects map[[2]string]struct{}         // tenants and tasks that the latest Reconcile found on one side only
}

// shard is one Redis with the lanes it holds and their schedule.
type shard struct {
	client redis.UniversalClient
	keys   keys
	lanes  []sheaf.Lane
	cfg    *Config

	mu   sync.Mutex
	down bool      // its latest call failed
	rest time.Time // no calls before this, after a failed one
}

// restAtLeast is the minimum time a failed Redis is left alone when others can
// continue; a call that took longer to fail sets a rest of that length.
const restAtLeast = 500 * time.Millisecond

// rests reports whether s should not be called now.
func (s *shard) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.rest)
}

// met records the outcome of a call to s that started at begun. The first failure,
// and the first success after it, are logged.
func (s *shard) met(ctx context.Context, begun time.Time, err error) {
	if ctx.Err() != nil {
		return // the caller was canceled
	}
	s.mu.Lock()
	changed := s.down != (err != nil)
	s.down, s.rest = err != nil, time.Time{}
	if s.down {
		s.rest = time.Now().Add(max(time.Since(begun), restAtLeast))
	}
	s.mu.Unlock()
	switch {
	case changed && err != nil:
		s.cfg.Log.Warn("a Redis of the queue is unavailable; its lanes wait, the others continue", "lanes", s.lanes, "error", err)
	case changed:
		s.cfg.Log.Info("a Redis of the queue is back", "lanes", s.lanes)
	}
}

var errRests = fmt.Errorf("%w: this Redis of the queue has failed just now; it is asked again in a moment", sheaf.ErrUnavailable)

// ask calls f, which calls only s. If there are several Redis, a failed one is not
// called for a while.
func (q *Queue) ask(ctx context.Context, s *shard, f func() error) error {
	if len(q.all()) == 1 {
		return f()
	}
	if s.rests() {
		return errRests
	}
	begun := time.Now()
	err := f()
	s.met(ctx, begun, err)
	return err
}

// each calls f for the shards until f wants no more. It fails only if all shards do.
func (q *Queue) each(ctx context.Context, f func(s *shard) (more bool, err error)) error {
	var failed []error
	for _, s := range q.shards {
		more := true
		err := q.ask(ctx, s, func() (err error) { more, err = f(s); return err })
		if err != nil {
			failed = append(failed, err)
		}
		if !more {
			break
		}
	}
	if len(failed) < len(q.shards) {
		return nil
	}
	return errors.Join(failed...)
}

// New makes a queue. It does not connect: a Redis that is down shows in Ping and in
// every call. The error is ErrInvalid for contradictory options.
func New(cfg Config) (*Queue, error) {
	if cfg.Window <= 0 {
		cfg.Window = 256
	}
	if cfg.DefaultCap <= 0 {
		cfg.DefaultCap = 8
	}
	if cfg.AgeAfter == 0 {
		cfg.AgeAfter = 10 * time.Minute
	}
	cfg.AgeAfter = max(cfg.AgeAfter, 0)
	if cfg.ConsumerTTL <= 0 {
		cfg.ConsumerTTL = time.Hour
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return nil, fmt.Errorf("%w: the Redis key prefix %q holds a brace, which would decide the Cluster slot of every key; choose one without", sheaf.ErrInvalid, cfg.Prefix)
	}
	if err := cfg.Redis.validate(); err != nil {
		return nil, err
	}
	for lane, o := range cfg.Lanes {
		if !slices.Contains(sheaf.Lanes[:], lane) {
			return nil, fmt.Errorf("%w: a Redis is given for lane %d; lanes are 1, 2 and 3", sheaf.ErrInvalid, lane)
		}
		if err := o.validate(); err != nil {
			return nil, fmt.Errorf("lane %d: %w", lane, err)
		}
	}

	q := &Queue{
		cfg:      cfg,
		cursors:  make(map[string]string),
		touched:  make(map[string]map[string]struct{}),
		suspects: make(map[[2]string]struct{}),
	}
	q.acks = batching.New(batching.Config[spent]{Max: batch, Timeout: ackTimeout}, q.ackAll)
	q.dones = batching.New(batching.Config[ended]{Max: batch, Timeout: ackTimeout}, q.doneAll)
	q.main = &shard{client: cfg.Redis.client(), keys: keys{cfg.Prefix}, cfg: &q.cfg}
	for _, lane := range sheaf.Lanes {
		o, own := cfg.Lanes[lane]
		if !own {
			q.main.lanes = append(q.main.lanes, lane)
			if len(q.main.lanes) == 1 {
				q.shards = append(q.shards, q.main)
			}
			continue
		}
		// A separate prefix keeps the schedules apart even when two lanes use the same
		// server.
		q.shards = append(q.shards, &shard{
			client: o.client(),
			keys:   keys{fmt.Sprintf("%slane%d:", cfg.Prefix, lane)},
			lanes:  []sheaf.Lane{lane},
			cfg:    &q.cfg,
		})
	}
	return q, nil
}

// of returns the shard that holds a lane.
func (q *Queue) of(lane sheaf.Lane) *shard {
	for _, s := range q.shards {
		if slices.Contains(s.lanes, lane) {
			return s
		}
	}
	return q.main
}

// all returns the shards and the main Redis, which is not among them when every lane
// has its own.
func (q *Queue) all() []*shard {
	if slices.Contains(q.shards, q.main) {
		return q.shards
	}
	return append([]*shard{q.main}, q.shards...)
}

// Publish adds hints to the stream up to the window's capacity, and makes the tenant
// eligible for picking even if the window was full, in case an earlier call ended
// between the two steps.
func (q *Queue) Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (int, error) {
	if len(hints) == 0 {
		return 0, nil
	}
	if !slices.Contains(sheaf.Lanes[:], lane) {
		return 0, fmt.Errorf("%w: lane %d does not exist; lanes are 1, 2 and 3", sheaf.ErrInvalid, lane)
	}
	s := q.of(lane)
	hints = hints[:min(len(hints), q.cfg.Window)]
	args := make([]any, 3, 3+5*len(hints))
	args[0], args[1], args[2] = group, q.cfg.Window, span
	for _, h := range hints {
		place := "" // "" means the time of publication
		if !h.Place.IsZero() {
			place = strconv.FormatInt(h.Place.UnixMilli(), 10)
		}
		args = append(args, h.TaskID, max(h.Cost, 1), string(h.Kind), int(h.Phase), place)
	}
	added := 0
	err := q.ask(ctx, s, func() (err error) {
		added, err = publishScript.Run(ctx, s.client, []string{s.keys.stream(tenantID, lane), s.keys.waiting(tenantID, lane)}, args...).Int()
		return wrap(ctx, "publish", err)
	})
	if err != nil {
		return 0, err
	}
	return added, q.activate(ctx, s, tenantID, added)
}

// activate makes a tenant eligible for picking from s and wakes that many executors.
func (q *Queue) activate(ctx context.Context, s *shard, tenantID string, wakeups int) error {
	k := s.keys
	wakeups = min(wakeups, 64)
	keys := []string{k.active(), k.idle(), k.vt(), k.act(), k.seq(), k.known(), k.wakeups(), k.round(), k.capped()}
	if s != q.main {
		if err := activateScript.Run(ctx, s.client, keys, tenantID, 0, stride*queue.MaxCredit).Err(); err != nil {
			return wrap(ctx, "activate", err)
		}
		if wakeups > 0 { // best effort: waiters also poll
			_ = q.ask(ctx, q.main, func() error { return q.Notify(ctx) })
		}
		return nil
	}
	return wrap(ctx, "activate", activateScript.Run(ctx, s.client, keys, tenantID, wakeups, stride*queue.MaxCredit).Err())
}

// SetShare stores weight and cap with the schedule. A tenant whose share changes is
// reconsidered, because it may have been at its old cap.
func (q *Queue) SetShare(ctx context.Context, tenantID string, weight, cap int) error {
	if cap <= 0 {
		cap = q.cfg.DefaultCap
	}
	share := fmt.Sprintf("%d %d", max(weight, 1), cap)
	// The error makes the keeper retry, for a Redis that is down.
	var failed []error
	for _, s := range q.shards {
		changed := 0
		err := q.ask(ctx, s, func() (err error) {
			changed, err = setShareScript.Run(ctx, s.client, []string{s.keys.share()}, tenantID, share).Int()
			return wrap(ctx, "set share", err)
		})
		if err == nil && changed == 1 {
			err = q.activate(ctx, s, tenantID, 1)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Take picks tenants and reads their streams until the slots are full or there is no
// more work.
func (q *Queue) Take(ctx context.Context, workerID string, slots int, skip []sheaf.TaskKind) ([]sheaf.Hint, error) {
	var got []sheaf.Hint
	err := q.each(ctx, func(s *shard) (bool, error) {
		hints, err := q.takeFrom(ctx, s, workerID, slots-len(got), skip)
		got = append(got, hints...)
		return len(got) < slots, err
	})
	if err != nil && len(got) > 0 {
		// The worker owns what was taken; the next call hits the error again.
		q.cfg.Log.Warn("take ended early", "taken", len(got), "error", err)
		err = nil
	}
	return got, err
}

// pick is a tenant whose turn it is.
type pick struct {
	tenant string
	picks  int
	charge int // per pick
	weight string
	cap    int
	act    string // numbers of its latest activations
}

func (q *Queue) takeFrom(ctx context.Context, s *shard, workerID string, slots int, skip []sheaf.TaskKind) ([]sheaf.Hint, error) {
	var got []sheaf.Hint
	for looked := 0; len(got) < slots && looked < maxPicks; {
		picks, err := s.pick(ctx, slots-len(got))
		if err != nil || len(picks) == 0 {
			return got, err
		}
		q.touch(workerID, picks)
		caps := q.headroom(ctx, s, picks)
		calls := make([]call, len(picks))
		for i, p := range picks {
			looked += p.picks
			calls[i] = s.takeCall(workerID, p, caps[i], skip)
		}
		// Settle what is known even if one tenant's take failed.
		var failed error
		settle := []any{stride}
		for i, answer := range runAll(ctx, s.client, takeScript, calls) {
			p := picks[i]
			hints, status, err := s.parseTake(p.tenant, answer)
			if err != nil {
				failed = wrap(ctx, "take", err)
			}
			got = append(got, hints...)
			cost, latest, leave, capped := 0, 0, "", 0
			for _, h := range hints {
				cost, latest = cost+h.Cost, h.Cost
			}
			if slices.Contains([]string{"empty", "last", "capped", "filled"}, status) {
				leave = p.act
			}
			if status == "capped" || status == "filled" {
				capped = 1
			}
			delta := cost - p.picks*p.charge
			if status == "skipped" {
				delta = 0 // stays charged, so that its turn passes to others
			}
			if delta != 0 || leave != "" || latest != 0 && latest != p.charge {
				settle = append(settle, p.tenant, delta, p.weight, latest, leave, capped)
			}
		}
		if len(settle) > 1 {
			k := s.keys
			active, err := settleScript.Run(ctx, s.client, []string{k.active(), k.idle(), k.vt(), k.act(), k.cost(), k.round(), k.wakeups(), k.capped()}, settle...).Int()
			switch {
			case failed != nil:
			case err != nil:
				failed = wrap(ctx, "settle", err)
			case active == 0:
				return got, nil // a pick would find nobody
			}
		}
		if failed != nil {
			return got, failed
		}
	}
	return got, nil
}

// pick asks the schedule n times whose turn it is.
func (s *shard) pick(ctx context.Context, n int) ([]pick, error) {
	k := s.keys
	answer, err := pickScript.Run(ctx, s.client,
		[]string{k.active(), k.idle(), k.vt(), k.act(), k.share(), k.cost(), k.searched(), k.wakeups(), k.round()},
		n, stride, s.cfg.DefaultCap).StringSlice()
	if err != nil {
		return nil, wrap(ctx, "pick", err)
	}
	picks := make([]pick, 0, len(answer)/5)
	for f := range slices.Chunk(answer, 5) {
		p := pick{tenant: f[0], act: f[4]}
		p.picks, _ = strconv.Atoi(f[1])
		p.charge, _ = strconv.Atoi(f[2])
		var cap string
		p.weight, cap, _ = strings.Cut(f[3], " ")
		p.cap, _ = strconv.Atoi(cap)
		picks = append(picks, p)
	}
	return picks, nil
}

// headroom is the cap of each pick minus its tasks running through other shards, as
// far as these respond.
func (q *Queue) headroom(ctx context.Context, s *shard, picks []pick) []int {
	caps := make([]int, len(picks))
	for i, p := range picks {
		caps[i] = p.cap
	}
	for _, other := range q.shards {
		if other == s {
			continue
		}
		counts := make([]*redis.IntCmd, len(picks))
		err := q.ask(ctx, other, func() error {
			_, err := other.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range picks {
					counts[i] = p.SCard(ctx, other.keys.run(picks[i].tenant))
				}
				return nil
			})
			return wrap(ctx, "count running", err)
		})
		if err != nil {
			continue
		}
		for i := range caps {
			caps[i] -= int(counts[i].Val())
		}
	}
	return caps
}

func (s *shard) takeCall(workerID string, p pick, cap int, skip []sheaf.TaskKind) call {
	c := call{
		keys: []string{s.keys.run(p.tenant), s.keys.wait(p.tenant), s.keys.turn(p.tenant)},
		args: []any{group, workerID, cap, p.picks, s.cfg.AgeAfter.Milliseconds(), 2 * s.cfg.Window, span, queue.BulkEvery, queue.AgedEvery, sheaf.BeginDelay.Milliseconds()},
	}
	for _, lane := range s.lanes {
		c.keys = append(c.keys, s.keys.stream(p.tenant, lane), s.keys.waiting(p.tenant, lane))
	}
	for _, kind := range skip {
		c.args = append(c.args, string(kind))
	}
	return c
}

// parseTake parses an answer of the take script.
func (s *shard) parseTake(tenantID string, answer *redis.Cmd) (hints []sheaf.Hint, status string, err error) {
	parts, err := answer.Slice()
	if err != nil || len(parts) == 0 {
		return nil, "", err
	}
	status, _ = parts[0].(string)
	for _, part := range parts[1:] {
		entry, _ := part.([]any)
		if len(entry) != 3 {
			return hints, status, fmt.Errorf("the take script answers %v", part)
		}
		index, _ := entry[0].(int64)
		id, _ := entry[1].(string)
		list, _ := entry[2].([]any)
		fields := make(map[string]any)
		for pair := range slices.Chunk(list, 2) {
			if name, ok := pair[0].(string); ok && len(pair) == 2 {
				fields[name] = pair[1]
			}
		}
		hints = append(hints, hint(tenantID, s.lanes[index-1], id, fields))
	}
	return hints, status, nil
}

// hint parses a stream entry.
func hint(tenantID string, lane sheaf.Lane, id string, fields map[string]any) sheaf.Hint {
	field := func(name string) string { s, _ := fields[name].(string); return s }
	cost, _ := strconv.Atoi(field("c"))
	phase, _ := strconv.Atoi(field("p"))
	place, _ := strconv.ParseInt(field("w"), 10, 64)
	return sheaf.Hint{
		TaskID: field("t"), TenantID: tenantID, Lane: lane, Cost: max(cost, 1),
		Kind: sheaf.TaskKind(field("k")), Phase: sheaf.Phase(phase), Place: time.UnixMilli(place), Token: id,
	}
}

// touch records which tenants' streams will know the worker as a consumer.
func (q *Queue) touch(workerID string, picks []pick) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenants := q.touched[workerID]
	if tenants == nil {
		tenants = make(map[string]struct{})
		q.touched[workerID] = tenants
	}
	for _, p := range picks {
		tenants[p.tenant] = struct{}{}
	}
}

// spent is a hint to remove from its stream.
type spent struct {
	hint    sheaf.Hint
	running bool
}

// Ack removes the entry from its stream. Concurrent calls share one round trip.
func (q *Queue) Ack(ctx context.Context, h sheaf.Hint, running bool) error {
	failed, err := q.acks.Do(ctx, spent{h, running})
	if err != nil {
		return wrap(ctx, "ack", err)
	}
	if !running && len(q.shards) > 1 {
		failed = errors.Join(failed, q.done(ctx, h.TenantID, nil)) // other shards may be waiting for the slot
	}
	return failed
}

// ackAll removes entries, with one script run per stream and outcome.
func (q *Queue) ackAll(ctx context.Context, batch []spent) []error {
	type place struct {
		tenantID string
		lane     sheaf.Lane
		running  bool
	}
	errs := make([]error, len(batch))
	for _, s := range q.shards {
		var order []place
		of := map[place][]int{} // indexes in batch
		for i, b := range batch {
			if key := (place{b.hint.TenantID, b.hint.Lane, b.running}); q.of(key.lane) == s {
				if of[key] == nil {
					order = append(order, key)
				}
				of[key] = append(of[key], i)
			}
		}
		calls := make([]call, len(order))
		for i, key := range order {
			keeps := 0
			if key.running {
				keeps = 1
			}
			c := call{
				keys: []string{s.keys.stream(key.tenantID, key.lane), s.keys.run(key.tenantID), s.keys.wait(key.tenantID)},
				args: []any{group, keeps},
			}
			for _, at := range of[key] {
				c.args = append(c.args, batch[at].hint.Token, batch[at].hint.TaskID)
			}
			calls[i] = c
		}
		for i, answer := range runAll(ctx, s.client, ackScript, calls) {
			err := wrap(ctx, "ack", q.freed(ctx, s, order[i].tenantID, answer))
			for _, at := range of[order[i]] {
				errs[at] = err
			}
		}
	}
	return errs
}

// freed reads the answer of a script that freed slots of a tenant, and makes the
// tenant eligible for picking again if it was waiting for one.
func (q *Queue) freed(ctx context.Context, s *shard, tenantID string, answer *redis.Cmd) error {
	freed, err := answer.Int()
	if err == nil && freed == 1 {
		err = q.activate(ctx, s, tenantID, 1)
	}
	return err
}

// ended is a task that is no longer running.
type ended struct{ tenantID, taskID string }

// Done frees the task's slot under the cap. Concurrent calls share one round trip.
func (q *Queue) Done(ctx context.Context, tenantID, taskID string) error {
	failed, err := q.dones.Do(ctx, ended{tenantID, taskID})
	if err != nil {
		return wrap(ctx, "done", err)
	}
	return failed
}

// doneAll frees slots, with one script run per tenant and shard.
func (q *Queue) doneAll(ctx context.Context, batch []ended) []error {
	var order []string
	tasks := map[string][]any{} // by tenant
	for _, e := range batch {
		if tasks[e.tenantID] == nil {
			order = append(order, e.tenantID)
		}
		tasks[e.tenantID] = append(tasks[e.tenantID], e.taskID)
	}
	err := q.each(ctx, func(s *shard) (bool, error) {
		calls := make([]call, len(order))
		for i, tenantID := range order {
			calls[i] = call{keys: []string{s.keys.run(tenantID), s.keys.wait(tenantID)}, args: tasks[tenantID]}
		}
		var failed error
		for i, answer := range runAll(ctx, s.client, doneScript, calls) {
			if err := q.freed(ctx, s, order[i], answer); err != nil {
				failed = wrap(ctx, "done", err)
			}
		}
		return true, failed
	})
	errs := make([]error, len(batch))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// done frees the slots of tasks of one tenant; with no tasks, it checks whether the
// tenant waits for a slot.
func (q *Queue) done(ctx context.Context, tenantID string, taskIDs []any) error {
	return q.each(ctx, func(s *shard) (bool, error) {
		answer := doneScript.Run(ctx, s.client, []string{s.keys.run(tenantID), s.keys.wait(tenantID)}, taskIDs...)
		return true, wrap(ctx, "done", q.freed(ctx, s, tenantID, answer))
	})
}

// Charge moves the tenant's next turn back.
func (q *Queue) Charge(ctx context.Context, h sheaf.Hint, cost int) error {
	s := q.of(h.Lane)
	k := s.keys
	return q.ask(ctx, s, func() error {
		return wrap(ctx, "charge", chargeScript.Run(ctx, s.client, []string{k.active(), k.idle(), k.vt(), k.share(), k.capped()}, h.TenantID, stride*cost).Err())
	})
}

// Recover searches the streams that hints were taken from for unacked entries, at
// most 200 tenants per call. An entry is found within one and a half times minIdle.
func (q *Queue) Recover(ctx context.Context, workerID string, minIdle time.Duration) ([]sheaf.Hint, error) {
	var hints []sheaf.Hint
	err := q.each(ctx, func(s *shard) (bool, error) {
		due, err := dueScript.Run(ctx, s.client, []string{s.keys.searched()}, (minIdle / 2).Milliseconds(), 200).StringSlice()
		if err != nil {
			return true, wrap(ctx, "recover", err)
		}
		for _, tenantID := range due {
			found, err := q.recoverTenant(ctx, s, tenantID, workerID, minIdle)
			hints = append(hints, found...)
			if err != nil {
				return true, wrap(ctx, "recover", err)
			}
		}
		return true, nil
	})
	return hints, err
}

// recoverTenant searches the streams of one tenant. A tenant with waiting hints that
// is neither eligible for picking nor waiting for its cap is made eligible again:
// its activation was lost with a process, or an executor of a version that knows
// only the streams dropped it.
func (q *Queue) recoverTenant(ctx context.Context, s *shard, tenantID, workerID string, minIdle time.Duration) ([]sheaf.Hint, error) {
	var (
		summaries = make([]*redis.XPendingCmd, len(s.lanes))
		lengths   = make([]*redis.IntCmd, len(s.lanes))
		sorted    = make([]*redis.IntCmd, len(s.lanes))
		capped    *redis.IntCmd
		active    *redis.FloatCmd
	)
	_, _ = s.client.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its own error
		for i, lane := range s.lanes {
			summaries[i] = p.XPending(ctx, s.keys.stream(tenantID, lane), group)
			lengths[i] = p.XLen(ctx, s.keys.stream(tenantID, lane))
			sorted[i] = p.ZCard(ctx, s.keys.waiting(tenantID, lane))
		}
		capped = p.Exists(ctx, s.keys.wait(tenantID))
		active = p.ZScore(ctx, s.keys.active(), tenantID)
		return nil
	})
	var (
		hints            []sheaf.Hint
		pending, waiting int64
	)
	for i, lane := range s.lanes {
		waiting += sorted[i].Val()
		summary, err := summaries[i].Result()
		if redis.HasErrorPrefix(err, "NOGROUP") || errors.Is(err, redis.Nil) {
			continue
		}
		if err := errors.Join(err, lengths[i].Err(), sorted[i].Err()); err != nil {
			return hints, err
		}
		waiting += max(lengths[i].Val()-summary.Count, 0)
		if summary.Count > 0 {
			pending += summary.Count
			found, err := q.claimIdle(ctx, s, tenantID, lane, workerID, minIdle)
			hints = append(hints, found...)
			if err != nil {
				return hints, err
			}
		}
		if err := q.dropIdleConsumers(ctx, s, tenantID, lane); err != nil {
			return hints, err
		}
	}
	if len(hints) > 0 {
		q.touch(workerID, []pick{{tenant: tenantID}})
	}
	switch {
	case waiting > 0 && capped.Val() == 0 && errors.Is(active.Err(), redis.Nil):
		return hints, q.activate(ctx, s, tenantID, int(waiting))
	case pending+waiting == 0:
		return hints, searchedScript.Run(ctx, s.client, []string{s.keys.searched(), s.keys.active()}, tenantID).Err()
	}
	return hints, nil
}

// claimIdle makes one pass of XAUTOCLAIM over a stream. An interrupted pass resumes
// where it stopped with the next call.
func (q *Queue) claimIdle(ctx context.Context, s *shard, tenantID string, lane sheaf.Lane, workerID string, minIdle time.Duration) ([]sheaf.Hint, error) {
	stream := s.keys.stream(tenantID, lane)
	q.mu.Lock()
	cursor, under := q.cursors[stream]
	q.mu.Unlock()
	if !under {
		cursor = "0-0"
	}
	var hints []sheaf.Hint
	for range 100 { // × 100 entries: far above any window
		entries, next, deleted, err := s.client.XAutoClaimWithDeleted(ctx, &redis.XAutoClaimArgs{
			Stream: stream, Group: group, Consumer: workerID, MinIdle: min(minIdle, longAgo), Start: cursor, Count: 100,
		}).Result()
		if err != nil {
			return hints, err
		}
		if len(deleted) > 0 {
			q.cfg.Log.Warn("stream entries were deleted while a worker held them; the keeper republishes their tasks if they are still pending",
				"stream", stream, "entries", deleted)
		}
		for _, entry := range entries {
			hints = append(hints, hint(tenantID, lane, entry.ID, entry.Values))
		}
		q.mu.Lock()
		if cursor = next; cursor == "0-0" {
			delete(q.cursors, stream)
		} else {
			q.cursors[stream] = cursor
		}
		q.mu.Unlock()
		if cursor == "0-0" {
			break
		}
	}
	return hints, nil
}

// dropIdleConsumers removes consumers of workers that ended without a Leave.
func (q *Queue) dropIdleConsumers(ctx context.Context, s *shard, tenantID string, lane sheaf.Lane) error {
	stream := s.keys.stream(tenantID, lane)
	consumers, err := s.client.XInfoConsumers(ctx, stream, group).Result()
	if err != nil {
		return err
	}
	for _, c := range consumers {
		if c.Pending == 0 && c.Idle > q.cfg.ConsumerTTL {
			if err := q.dropConsumer(ctx, s, tenantID, lane, c.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropConsumer returns the hints a worker took from one stream and removes the
// consumer.
func (q *Queue) dropConsumer(ctx context.Context, s *shard, tenantID string, lane sheaf.Lane, workerID string) error {
	gone, back := false, int64(0)
	for range 100 { // × 100 entries
		answer, err := dropConsumerScript.Run(ctx, s.client,
			[]string{s.keys.stream(tenantID, lane), s.keys.run(tenantID)}, group, workerID, 100).Int64Slice()
		if err != nil {
			return err
		}
		back += answer[0]
		if gone = answer[1] == 1; gone {
			break
		}
	}
	if back > 0 {
		return q.activate(ctx, s, tenantID, int(back))
	}
	return nil
}

// Wait blocks in Redis for a second at a time.
func (q *Queue) Wait(ctx context.Context, d time.Duration) error {
	deadline := time.Now().Add(d)
	for {
		left := time.Until(deadline)
		if left <= 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		woken, err := q.block(ctx, min(left, maxBlock))
		if woken {
			return nil
		}
		if err != nil {
			select {
			case <-time.After(time.Until(deadline)):
				if len(q.shards) > 1 {
					return nil // waited; lanes with a Redis of their own may have work
				}
				return wrap(ctx, "wait", err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// block waits for one wake-up. A blocked Redis read does not notice that ctx is
// done; it is left to time out, and passes on a wake-up that it received in vain.
func (q *Queue) block(ctx context.Context, d time.Duration) (woken bool, err error) {
	type result struct {
		woken bool
		err   error
	}
	received := make(chan result)
	go func() {
		// In milliseconds, which the client's own method would round to seconds.
		err := q.main.client.Do(context.WithoutCancel(ctx), "BRPOP", q.main.keys.wakeups(), max(d, time.Millisecond).Seconds()).Err()
		r := result{woken: err == nil}
		if !errors.Is(err, redis.Nil) {
			r.err = err
		}
		select {
		case received <- r:
		case <-ctx.Done():
			if r.woken {
				_ = q.Notify(context.WithoutCancel(ctx))
			}
		}
	}()
	select {
	case r := <-received:
		return r.woken, r.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Notify wakes one waiter.
func (q *Queue) Notify(ctx context.Context) error {
	list := q.main.keys.wakeups()
	_, err := q.main.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, list, "1")
		p.LTrim(ctx, list, 0, 63)
		return nil
	})
	return wrap(ctx, "wake", err)
}

// SignalCancel adds the ids to a short stream that every process reads. It is the
// only stream that is trimmed: nothing depends on it.
func (q *Queue) SignalCancel(ctx context.Context, taskIDs []string) error {
	if len(taskIDs) == 0 {
		return nil
	}
	_, err := q.main.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for ids := range slices.Chunk(taskIDs, 100) {
			p.XAdd(ctx, &redis.XAddArgs{
				Stream: q.main.keys.cancel(), MaxLen: cancelLen, Approx: true,
				Values: []string{"t", strings.Join(ids, ",")},
			})
		}
		return nil
	})
	return wrap(ctx, "cancel", err)
}

// Cancels reads the cancel stream from its current end.
func (q *Queue) Cancels(ctx context.Context) <-chan string {
	out := make(chan string, 1024)
	stream, from := q.main.keys.cancel(), "$"
	if last, err := q.endOf(ctx, stream); err == nil {
		from = last
	}
	go func() {
		defer close(out)
		failing := false
		for ctx.Err() == nil {
			read, err := q.main.client.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, from}, Count: 100, Block: maxBlock}).Result()
			if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() == nil {
				if !failing {
					q.cfg.Log.Warn("cannot listen for cancel signals; heartbeats deliver them meanwhile", "error", wrap(ctx, "cancels", err))
				}
				failing = true
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				continue
			}
			failing = false
			for _, s := range read {
				for _, entry := range s.Messages {
					from = entry.ID
					ids, _ := entry.Values["t"].(string)
					for id := range strings.SplitSeq(ids, ",") {
						select {
						case out <- id:
						case <-ctx.Done():
							return
						}
					}
				}
			}
		}
	}()
	return out
}

// endOf returns the id of the last entry of a stream of the main Redis, or "0-0",
// which precedes all others, if it is empty.
func (q *Queue) endOf(ctx context.Context, stream string) (string, error) {
	last, err := q.main.client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(last) == 0 {
		return "0-0", nil
	}
	return last[0].ID, nil
}

// NotifyChange replaces the single entry of the stream that keepers follow: only its
// newness matters.
func (q *Queue) NotifyChange(ctx context.Context) error {
	return q.ask(ctx, q.main, func() error {
		return wrap(ctx, "changes", q.main.client.XAdd(ctx, &redis.XAddArgs{Stream: q.main.keys.changes(), MaxLen: 1, Values: []string{"s", "1"}}).Err())
	})
}

// Changes reads that stream. Whenever it starts, at first and after an error, it
// finds the current end and then receives once, to make up for earlier changes and
// for those while Redis was down.
func (q *Queue) Changes(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		from, failing := "", false
		for ctx.Err() == nil {
			next, err := q.awaitChange(ctx, from)
			if ctx.Err() != nil {
				return
			}
			wait := changePause
			switch {
			case err != nil:
				if !failing {
					q.cfg.Log.Warn("cannot listen for changes in other processes; the keeper polls meanwhile", "error", err)
				}
				from, failing, wait = "", true, time.Second
			case next != from:
				from, failing = next, false
				select {
				case out <- struct{}{}:
				default:
				}
			default:
				continue
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// awaitChange waits for a while for an entry after from and returns the id of the
// last one, or from itself if there is none. With from "", it returns the current
// end immediately.
func (q *Queue) awaitChange(ctx context.Context, from string) (last string, err error) {
	stream := q.main.keys.changes()
	if from == "" {
		last, err = q.endOf(ctx, stream)
		return last, wrap(ctx, "changes", err)
	}
	read, err := q.main.client.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, from}, Count: 1, Block: maxBlock}).Result()
	if err != nil {
		return from, wrap(ctx, "changes", err)
	}
	for _, s := range read {
		for _, entry := range s.Messages {
			from = entry.ID
		}
	}
	return from, nil
}

// Reconcile compares the run sets with the store. A task found on one side only by
// two consecutive calls is removed from the set or, after Redis has lost its memory,
// added to it.
func (q *Queue) Reconcile(ctx context.Context, running map[string][]string) error {
	known, err := q.tenants(ctx)
	if err != nil {
		return err
	}
	tenants := slices.AppendSeq(known, maps.Keys(running))
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)

	q.mu.Lock()
	suspected := q.suspects
	q.mu.Unlock()
	suspects := make(map[[2]string]struct{})
	for part := range slices.Chunk(tenants, batch) {
		counted := make(map[string]map[string]bool) // tenant → tasks in any of its run sets
		for _, s := range q.shards {
			sets := make([]*redis.StringSliceCmd, len(part))
			_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, tenantID := range part {
					sets[i] = p.SMembers(ctx, s.keys.run(tenantID))
				}
				return nil
			})
			if err != nil {
				return wrap(ctx, "reconcile", err)
			}
			for i, tenantID := range part {
				for _, task := range sets[i].Val() {
					if counted[tenantID] == nil {
						counted[tenantID] = make(map[string]bool)
					}
					counted[tenantID][task] = true
				}
			}
		}
		for _, tenantID := range part {
			var gone, missing []any
			note := func(task string, list *[]any) {
				key := [2]string{tenantID, task}
				if _, again := suspected[key]; again {
					*list = append(*list, task)
				} else {
					suspects[key] = struct{}{}
				}
			}
			for task := range counted[tenantID] {
				if !slices.Contains(running[tenantID], task) {
					note(task, &gone)
				}
			}
			for _, task := range running[tenantID] {
				if !counted[tenantID][task] {
					note(task, &missing)
				}
			}
			if len(missing) > 0 {
				if err := q.main.client.SAdd(ctx, q.main.keys.run(tenantID), missing...).Err(); err != nil {
					return wrap(ctx, "reconcile", err)
				}
			}
			if len(gone) > 0 {
				if err := q.done(ctx, tenantID, gone); err != nil {
					return err
				}
			}
		}
	}
	q.mu.Lock()
	q.suspects = suspects
	q.mu.Unlock()
	return nil
}

// tenants lists, sorted, all tenants that had work since Redis last lost its memory.
func (q *Queue) tenants(ctx context.Context) ([]string, error) {
	seen := make(map[string]struct{})
	for _, s := range q.shards {
		scan := s.client.SScan(ctx, s.keys.known(), 0, "", batch).Iterator()
		for scan.Next(ctx) {
			seen[scan.Val()] = struct{}{}
		}
		if err := scan.Err(); err != nil {
			return nil, wrap(ctx, "list tenants", err)
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// RunIDs returns a random value per Redis, which is set on first use and lost with
// its memory.
func (q *Queue) RunIDs(ctx context.Context) (map[sheaf.Lane]string, error) {
	out := map[sheaf.Lane]string{}
	err := q.each(ctx, func(s *shard) (bool, error) {
		value, err := s.runID(ctx)
		if err == nil {
			for _, lane := range s.lanes {
				out[lane] = value
			}
		}
		return true, err
	})
	return out, err
}

func (s *shard) runID(ctx context.Context) (string, error) {
	key := s.keys.runID()
	if err := s.client.SetNX(ctx, key, sheaf.NewID(), 0).Err(); err != nil {
		return "", wrap(ctx, "runID", err)
	}
	value, err := s.client.Get(ctx, key).Result()
	return value, wrap(ctx, "runID", err)
}

// Depths counts the entries of all tenants' streams.
func (q *Queue) Depths(ctx context.Context) ([]queue.Depth, error) {
	tenants, err := q.tenants(ctx)
	if err != nil {
		return nil, err
	}
	var depths []queue.Depth
	for _, s := range q.shards {
		for part := range slices.Chunk(tenants, batch) {
			lengths := make([]*redis.IntCmd, 0, len(part)*len(s.lanes))
			waiting := make([]*redis.IntCmd, 0, len(part)*len(s.lanes))
			_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, tenantID := range part {
					for _, lane := range s.lanes {
						lengths = append(lengths, p.XLen(ctx, s.keys.stream(tenantID, lane)))
						waiting = append(waiting, p.ZCard(ctx, s.keys.waiting(tenantID, lane)))
					}
				}
				return nil
			})
			if err != nil {
				return nil, wrap(ctx, "depths", err)
			}
			var (
				filled  []queue.Depth
				pending []*redis.XPendingCmd
			)
			_, _ = s.client.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its own error
				for i, length := range lengths {
					if n := length.Val() + waiting[i].Val(); n > 0 { // taken entries are still in the stream
						d := queue.Depth{TenantID: part[i/len(s.lanes)], Lane: s.lanes[i%len(s.lanes)], Waiting: int(n)}
						filled = append(filled, d)
						pending = append(pending, p.XPending(ctx, s.keys.stream(d.TenantID, d.Lane), group))
					}
				}
				return nil
			})
			for i, d := range filled {
				summary, err := pending[i].Result()
				if err != nil && !redis.HasErrorPrefix(err, "NOGROUP") && !errors.Is(err, redis.Nil) {
					return nil, wrap(ctx, "depths", err)
				}
				if err == nil {
					d.Taken = int(summary.Count)
					d.Waiting = max(d.Waiting-d.Taken, 0)
				}
				depths = append(depths, d)
			}
		}
	}
	slices.SortFunc(depths, queue.CompareDepths)
	return depths, nil
}

// Hints implements queue.Lister.
func (q *Queue) Hints(ctx context.Context, each func(h sheaf.Hint, published time.Time) error) error {
	tenants, err := q.tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenantID := range tenants {
		for _, s := range q.shards {
			for _, lane := range s.lanes {
				members, err := s.client.ZRange(ctx, s.keys.waiting(tenantID, lane), 0, -1).Result() // a few windows at most
				if err != nil {
					return wrap(ctx, "list hints", err)
				}
				for _, m := range members {
					f := strings.Fields(m)
					if len(f) != 4 {
						continue // from another version
					}
					h := hint(tenantID, lane, "", map[string]any{"t": f[0], "c": f[1], "k": f[2]})
					published, _ := strconv.ParseInt(f[3], 10, 64)
					if err := each(h, time.UnixMilli(published)); err != nil {
						return err
					}
				}
				for from := "-"; from != ""; {
					entries, err := s.client.XRangeN(ctx, s.keys.stream(tenantID, lane), from, "+", batch).Result()
					if err != nil {
						return wrap(ctx, "list hints", err)
					}
					from = ""
					for _, entry := range entries {
						ms, _, _ := strings.Cut(entry.ID, "-")
						published, _ := strconv.ParseInt(ms, 10, 64)
						if err := each(hint(tenantID, lane, entry.ID, entry.Values), time.UnixMilli(published)); err != nil {
							return err
						}
						if len(entries) == batch {
							from = "(" + entry.ID
						}
					}
				}
			}
		}
	}
	return nil
}

// Leave returns the worker's unacked hints to the tails of the streams, and removes
// the worker from Redis.
func (q *Queue) Leave(ctx context.Context, workerID string) error {
	q.mu.Lock()
	tenants := slices.Sorted(maps.Keys(q.touched[workerID]))
	q.mu.Unlock()
	for _, tenantID := range tenants {
		for _, s := range q.shards {
			for _, lane := range s.lanes {
				if err := q.dropConsumer(ctx, s, tenantID, lane, workerID); err != nil {
					return wrap(ctx, "leave", err)
				}
			}
		}
	}
	q.mu.Lock()
	delete(q.touched, workerID)
	q.mu.Unlock()
	return nil
}

// Ping checks every Redis of the queue.
func (q *Queue) Ping(ctx context.Context) error {
	for _, s := range q.all() {
		if err := s.client.Ping(ctx).Err(); err != nil {
			return wrap(ctx, "ping", err)
		}
	}
	return nil
}

// Close closes the connections.
func (q *Queue) Close() error {
	var errs []error
	for _, s := range q.all() {
		errs = append(errs, s.client.Close())
	}
	return errors.Join(errs...)
}
