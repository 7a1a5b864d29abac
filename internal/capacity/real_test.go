package capacity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/queue/queuetest"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/internal/worker"
	"sheaf/taskstore"
)

// The model hands out tasks in the order in which the queue does: of the same
// tenants with the same weights, caps and tasks the same one is next.
func TestOrderIsThatOfTheQueue(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { sameOrder(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			t.Fatal("with seed", seed)
		}
	}
}

func sameOrder(t *testing.T, random *rand.Rand) {
	ctx, base := t.Context(), time.Now()
	now := func() float64 { return time.Since(base).Seconds() }
	store := new(queuetest.Store)
	q := sqlqueue.New(store, sqlqueue.Config{})
	defer q.Close()
	const tenants = 4
	model := newFair(tenants, 0)
	name := func(id int32) string { return fmt.Sprint("t", id) }
	var ids []string // of tasks by number, which is the document in the model
	var costs []float64
	add := func(id int32) {
		// Without ends of documents: this queue reads them in one list with ranges,
		// and may not look far enough into it to see which has aged most.
		h := sheaf.Hint{TenantID: name(id), Lane: sheaf.Lanes[random.IntN(len(sheaf.Lanes))], Phase: sheaf.Phases[1+random.IntN(len(sheaf.Phases)-1)],
			Cost: 1 + random.IntN(30), Kind: sheaf.KindParse, Place: time.Now()}
		model.add(id, h.Lane, hints{place: now(), doc: int32(len(ids)), n: 1, phase: h.Phase}, true)
		ids, costs = append(ids, store.AddTask(h, h.Place)), append(costs, float64(h.Cost))
	}
	notify := func() {
		if err := q.Notify(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for id := range int32(tenants) {
		weight, most := 1+random.IntN(3), 1+random.IntN(6)
		store.SetTenant(name(id), weight, most)
		model.tenants[id].weight, model.tenants[id].cap = float64(weight), int32(most)
		for range 1 + random.IntN(60) {
			add(id)
		}
	}
	notify()
	type run struct{ task, tenant int32 }
	var running []run
	for range 150 {
		switch random.IntN(8) {
		case 0, 1, 2:
			want := 1 + random.IntN(8)
			got, err := q.Take(ctx, "w", want, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				tenant, _, h, ok := model.take(now(), func(h hints) float64 { return costs[h.doc] })
				if ok != (i < len(got)) {
					t.Fatalf("the queue has %d more, and the model %v", len(got)-i, ok)
				}
				if !ok {
					break
				}
				if ids[h.doc] != got[i].TaskID {
					t.Fatalf("the model takes %s, %+v, and the queue %+v", ids[h.doc], h, got[i])
				}
				running = append(running, run{h.doc, tenant})
			}
			for _, h := range got {
				if !store.Claim(h.TaskID) {
					t.Fatalf("%s cannot be claimed", h.TaskID)
				}
				if err := q.Ack(ctx, h, true); err != nil {
					t.Fatal(err)
				}
			}
		case 3, 4, 5:
			for range min(len(running), 4) {
				i := random.IntN(len(running))
				of := running[i]
				running = slices.Delete(running, i, i+1)
				store.Finish(ids[of.task], false)
				if err := q.Done(ctx, name(of.tenant), ids[of.task]); err != nil {
					t.Fatal(err)
				}
				model.done(of.tenant, now())
			}
		case 6:
			time.Sleep([]time.Duration{time.Second, time.Minute, 4 * time.Minute}[random.IntN(3)])
		case 7:
			// To those that have some: the queue forgets the turns of others.
			if id := int32(random.IntN(tenants)); model.tenants[id].backlog > 0 {
				add(id)
				notify()
			}
		}
	}
}

// memory is the store of workers whose tasks only take their time.
type memory struct {
	*queuetest.Store
	queue   *sqlqueue.Queue
	started time.Time

	mu    sync.Mutex
	tasks map[string]*sheaf.Task
	docs  map[string]*held
	found []time.Duration // since the start, of documents that are searchable
	over  chan struct{}
}

type held struct {
	tenant string
	pages  int
	left   int
}

func (m *memory) make(doc string, kind sheaf.TaskKind, phase sheaf.Phase, pages int) {
	d := m.docs[doc]
	id := m.Store.AddTask(sheaf.Hint{TenantID: d.tenant, Lane: sheaf.LaneNormal, Cost: max(pages, 1), Kind: kind, Phase: phase, Place: m.started}, m.started)
	m.tasks[id] = &sheaf.Task{ID: id, TenantID: d.tenant, DocumentID: doc, Kind: kind, Cost: pages}
}

func (m *memory) Claim(_ context.Context, id, _ string, _ time.Duration) (*sheaf.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.Store.Claim(id) {
		return nil, &taskstore.NotClaimable{State: m.Store.State(id)}
	}
	t := *m.tasks[id]
	return &t, nil
}

func (m *memory) Complete(ctx context.Context, c sheaf.Claim, _ taskstore.Completion) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[c.TaskID]
	d := m.docs[t.DocumentID]
	m.Store.Finish(t.ID, false)
	switch t.Kind {
	case sheaf.KindPlan:
		d.left = (d.pages + int(rangePages) - 1) / int(rangePages)
		for i := range d.left {
			m.make(t.DocumentID, sheaf.KindParse, sheaf.PhaseRanges, min(int(rangePages), d.pages-i*int(rangePages)))
		}
	case sheaf.KindParse:
		if d.left--; d.left == 0 {
			m.make(t.DocumentID, sheaf.KindFinalize, sheaf.PhaseFinish, 0)
		}
	case sheaf.KindFinalize:
		if m.found = append(m.found, time.Since(m.started)); len(m.found) == len(m.docs) {
			close(m.over)
		}
	}
	return m.queue.Notify(ctx)
}

func (m *memory) Heartbeat(context.Context, taskstore.WorkerStatus, time.Duration, []sheaf.Claim) (taskstore.HeartbeatReply, error) {
	return taskstore.HeartbeatReply{}, nil
}
func (m *memory) Held(context.Context, string, []string) ([]sheaf.Claim, error) { return nil, nil }
func (m *memory) Release(context.Context, sheaf.Claim) error                    { return nil }
func (m *memory) Deregister(context.Context, string) error                      { return nil }
func (m *memory) FailTask(context.Context, sheaf.Claim, taskstore.FailReport) (sheaf.TaskState, error) {
	return sheaf.TaskDead, nil
}
func (m *memory) Snooze(context.Context, sheaf.Claim, time.Duration, sheaf.Failure) error {
	return nil
}

// What real workers do with the real queue, whose tasks take their time by a clock
// that costs nothing, is what the model says within a twentieth.
func TestModelAgreesWithWorkers(t *testing.T) {
	const slots, page, plan, end = 6, 10 * time.Millisecond, 20 * time.Millisecond, 5 * time.Millisecond
	for _, executors := range []int{1, 2, 4} {
		for _, tenants := range []int{1, 100, 10_000} {
			for _, most := range []int{5, 1000} {
				t.Run(fmt.Sprint(executors, "/", tenants, "/", most), func(t *testing.T) {
					c := Defaults()
					c.Executors, c.Slots, c.Cores, c.Tenants, c.Cap, c.NoFeed = executors, slots, slots, tenants, most, true
					c.Times = Times{executorPage: ms(page), executorDocument: ms(plan), executorTask: ms(end)}
					c.Times[executorDocument] -= ms(end)
					random := rand.New(rand.NewPCG(1, uint64(tenants)))
					byZipf := make([]float64, tenants)
					for i := range byZipf {
						byZipf[i] = 1 / float64(i+1)
					}
					shares := sums(byZipf)
					for range 100 * executors {
						c.Batch = append(c.Batch, Upload{Tenant: draw(random, shares), Pages: []int{1, 12, 50, 200}[random.IntN(4)]})
					}
					s := played(t, c, nil)
					found := workersDo(t, c, page, plan, end)
					within := func(what string, predicted float64, measured time.Duration, by float64) {
						if ratio := predicted / measured.Seconds(); ratio < 1-by || ratio > 1+by {
							t.Errorf("%s: predicted %.2f s, measured %.2f s", what, predicted, measured.Seconds())
						}
					}
					var sum time.Duration
					for _, d := range found {
						sum += d
					}
					within("all", s.out.last, found[len(found)-1], .05)
					within("a document", s.out.residence/float64(len(found)), sum/time.Duration(len(found)), .05)
				})
			}
		}
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// workersDo has real workers work on a batch, and says when each of its documents
// was searchable.
func workersDo(t *testing.T, c Config, page, plan, end time.Duration) (found []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{Store: new(queuetest.Store), started: time.Now(), tasks: map[string]*sheaf.Task{}, docs: map[string]*held{}, over: make(chan struct{})}
		m.queue = sqlqueue.New(m.Store, sqlqueue.Config{})
		for i, u := range c.Batch {
			d := &held{tenant: fmt.Sprintf("t%05d", u.Tenant), pages: u.Pages}
			m.Store.SetTenant(d.tenant, 1, c.Cap)
			m.docs[fmt.Sprint(i)] = d
			m.make(fmt.Sprint(i), sheaf.KindPlan, sheaf.PhaseBegin, 0)
		}
		takes := func(d func(t *sheaf.Task) time.Duration) worker.Processor {
			return worker.ProcessorFunc(func(_ context.Context, t *sheaf.Task) (taskstore.Completion, error) {
				time.Sleep(d(t))
				return taskstore.Completion{}, nil
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range c.Executors {
			w := worker.New(worker.Config{Store: m, Queue: m.queue, Workers: c.Slots, Batch: 1, Processors: map[sheaf.TaskKind]worker.Processor{
				sheaf.KindPlan:     takes(func(*sheaf.Task) time.Duration { return plan }),
				sheaf.KindParse:    takes(func(t *sheaf.Task) time.Duration { return end + page*time.Duration(t.Cost) }),
				sheaf.KindFinalize: takes(func(*sheaf.Task) time.Duration { return end }),
			}})
			all.Go(func() { _ = w.Run(ctx, nil) }) // ends with ctx
		}
		<-m.over
		found = m.found
		stop()
		all.Wait()
		_ = m.queue.Close()
	})
	return found
}
