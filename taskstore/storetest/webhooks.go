package storetest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

func (b *bench) newWebhook(events ...string) *taskstore.Webhook {
	b.t.Helper()
	w, err := b.CreateWebhook(b.ctx, taskstore.Webhook{ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, URL: "https://example.invalid/hook",
		Events: events, Secret: "whsec_secret", Enabled: true})
	b.ok(err)
	return w
}

// due reports whether the webhook has something to send now.
func (b *bench) due(w *taskstore.Webhook) bool {
	b.t.Helper()
	all, err := b.DueWebhooks(b.ctx, "", 10_000)
	b.ok(err)
	for after, i := "", 0; i < len(all); i++ { // one by one they are the same
		next, err := b.DueWebhooks(b.ctx, after, 1)
		b.ok(err)
		if len(next) != 1 || next[0].ID != all[i].ID {
			b.t.Fatalf("after %q: %+v", after, next)
		}
		after = next[0].ID
	}
	return slices.ContainsFunc(all, func(d taskstore.Webhook) bool { return d.ID == w.ID && d.Secret == w.Secret })
}

func (b *bench) messages(w *taskstore.Webhook, states ...taskstore.DeliveryState) (events []string) {
	b.t.Helper()
	page := taskstore.Page{Limit: 2, Ascending: true} // short, so that there are more pages
	for {
		some, next, err := b.Deliveries(b.ctx, w, states, page)
		b.ok(err)
		for _, d := range some {
			events = append(events, d.Event)
		}
		if page.Cursor = next; next == "" {
			return events
		}
	}
}

// claimMessage claims the webhook's next message.
func (b *bench) claimMessage(w *taskstore.Webhook) *taskstore.Delivery {
	b.t.Helper()
	one, err := b.ClaimDeliveries(b.ctx, w.ID, 1, time.Minute)
	b.ok(err)
	if len(one) != 1 {
		b.t.Fatalf("%d messages are due, want 1", len(one))
	}
	return &one[0]
}

func testWebhooks(t *testing.T, b *bench) {
	w, off := b.newWebhook("document.failed"), b.newWebhook()
	b.same("webhook", []any{w.URL, w.Events, w.Enabled, w.Secret}, []any{"https://example.invalid/hook", []string{"document.failed"}, true, "whsec_secret"})
	off.Enabled = false
	b.ok(b.UpdateWebhook(b.ctx, *off))

	// Each end is written once, to the enabled webhooks, whatever events they want.
	job, id, _ := b.live("a")
	if !b.due(w) || b.due(off) {
		t.Fatalf("due %v, the disabled one %v", b.due(w), b.due(off))
	}
	b.ok(b.AnnounceJob(b.ctx, b.tenant, job))
	b.ok(b.AnnounceJob(b.ctx, b.tenant, job))
	b.same("messages", b.messages(w), []string{"document.succeeded", "job.succeeded"})
	b.same("messages of the disabled", b.messages(off), []string(nil))

	// A job that has not ended is not announced; one whose last document was taken over
	// by another job is.
	other, more := b.create("b", "c")
	b.ok(b.AnnounceJob(b.ctx, b.tenant, other))
	again := b.newJob(sheaf.JobReparse)
	b.ok(b.Reparse(b.ctx, again, []taskstore.ReparseDocument{{DocumentID: more[0], Plan: planTask()}}, ""))
	_, err := b.DeleteDocuments(b.ctx, b.tenant, more)
	b.ok(err)
	b.same("messages", b.messages(w)[2:], []string{"document.canceled", "document.deleted", "document.deleted"})
	b.ok(b.AnnounceJob(b.ctx, b.tenant, other))
	if last := b.messages(w); !strings.HasPrefix(last[len(last)-1], "job.") {
		t.Errorf("the job that lost its documents ended untold: %v", last)
	}

	// A claim is exclusive for its lease and fences the end of an older one.
	first, err := b.ClaimDeliveries(b.ctx, w.ID, 1, time.Minute)
	b.ok(err)
	d := first[0]
	b.same("claimed", []any{d.Event, d.Attempts, d.TenantID}, []any{"document.succeeded", 1, b.tenant})
	if !strings.Contains(string(d.Data), id) || d.JobID != job {
		t.Errorf("the message does not name its document and job: %+v %s", d, d.Data)
	}
	rest, err := b.ClaimDeliveries(b.ctx, w.ID, 100, time.Minute)
	b.ok(err)
	if slices.ContainsFunc(rest, func(r taskstore.Delivery) bool { return r.Seq == d.Seq }) || b.due(w) {
		t.Error("what is claimed is given out again")
	}
	for i := range rest {
		b.ok(b.EndDelivery(b.ctx, &rest[i], taskstore.DeliveryEnd{Unwanted: true}))
	}
	b.same("left", b.messages(w), []string{"document.succeeded"})
	n, err := b.ReplayDeliveries(b.ctx, w, taskstore.Replay{EventIDs: []string{d.EventID}})
	b.ok(err)
	b.same("replayed", n, 1)
	b.ok(b.EndDelivery(b.ctx, &d, taskstore.DeliveryEnd{State: taskstore.DeliveryDelivered, Status: 200}))
	b.same("pending after a late end", b.messages(w, taskstore.DeliveryPending), []string{"document.succeeded"})

	// A failure holds back the whole webhook; changing the webhook clears that.
	claim := func() *taskstore.Delivery { return b.claimMessage(w) }
	b.ok(b.EndDelivery(b.ctx, claim(), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 500, Error: "answered 500", Hold: time.Hour}))
	held, err := b.Webhook(b.ctx, b.tenant, b.dataset.ID, w.ID)
	b.ok(err)
	b.same("held", []any{held.Failures, held.LastError, b.due(w)}, []any{1, "answered 500", false})
	b.ok(b.UpdateWebhook(b.ctx, *held))
	if !b.due(w) {
		t.Error("a webhook that was changed is still held")
	}
	c := claim()
	b.same("attempts", c.Attempts, 2)
	b.ok(b.EndDelivery(b.ctx, c, taskstore.DeliveryEnd{Untried: true}))
	c = claim()
	b.same("attempts of what was given back", c.Attempts, 2)
	b.ok(b.EndDelivery(b.ctx, c, taskstore.DeliveryEnd{State: taskstore.DeliveryDead, Status: 410, Error: "gone", Disable: true}))
	held, err = b.Webhook(b.ctx, b.tenant, b.dataset.ID, w.ID)
	b.ok(err)
	b.same("gone", []any{held.Enabled, b.messages(w, taskstore.DeliveryDead)}, []any{false, []string{"document.succeeded"}})
	held.Enabled = true
	b.ok(b.UpdateWebhook(b.ctx, *held))
	n, err = b.ReplayDeliveries(b.ctx, w, taskstore.Replay{})
	b.ok(err)
	b.same("replayed of the dead", n, 1)
	b.ok(b.EndDelivery(b.ctx, claim(), taskstore.DeliveryEnd{State: taskstore.DeliveryDelivered, Status: 204}))
	n, err = b.ReplayDeliveries(b.ctx, w, taskstore.Replay{States: []taskstore.DeliveryState{taskstore.DeliveryDelivered}, Since: time.Now().AddDate(50, 0, 0)})
	b.ok(err)
	b.same("replayed of the far future", n, 0)

	// Concurrent claims share the messages.
	for range 20 {
		_, err := b.PingWebhook(b.ctx, w)
		b.ok(err)
	}
	var group sync.WaitGroup
	var taken atomic.Int32
	for range 4 {
		group.Go(func() {
			for range 20 {
				some, err := b.ClaimDeliveries(b.ctx, w.ID, 3, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				taken.Add(int32(len(some)))
			}
		})
	}
	group.Wait()
	b.same("taken", taken.Load(), int32(20))

	// The last message of a job is the one that no other follows. What was tried
	// before, and has to wait, does not count.
	busy := b.newWebhook()
	_, _, _ = b.live("x")
	big, docs := b.create("d", "e", "f")
	_, err = b.CancelDocuments(b.ctx, b.tenant, docs)
	b.ok(err)
	b.fold()
	next := func() *taskstore.Delivery { return b.claimMessage(busy) }
	b.same("another job follows", next().Followed, false)
	one := next()
	b.same("two follow", []any{one.JobID, one.Followed}, []any{big, true})
	two := next()
	b.same("one follows", two.Followed, true)
	three := next()
	b.same("none follows", []any{three.JobID, three.Followed}, []any{big, false})
	b.ok(b.EndDelivery(b.ctx, three, taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 500, Error: "answered 500"}))
	b.ok(b.EndDelivery(b.ctx, two, taskstore.DeliveryEnd{Untried: true}))
	b.same("what failed does not follow", next().Followed, false)
	failed, err := b.Webhook(b.ctx, b.tenant, b.dataset.ID, busy.ID)
	b.ok(err)
	b.same("a failure that holds nothing back", []any{failed.Failures, b.due(failed)}, []any{0, true})
	b.ok(b.DeleteWebhook(b.ctx, b.tenant, b.dataset.ID, busy.ID))

	// The maximum per dataset, and deleting all of them.
	_, _, err = b.Deliveries(b.ctx, w, nil, taskstore.Page{Cursor: "x"})
	b.is(err, sheaf.ErrInvalid)
	for range 8 {
		b.newWebhook()
	}
	_, err = b.CreateWebhook(b.ctx, taskstore.Webhook{ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, URL: "https://x.invalid", Enabled: true})
	b.is(err, sheaf.ErrLimit)
	b.ok(b.DeleteWebhook(b.ctx, b.tenant, b.dataset.ID, w.ID))
	b.same("messages of a webhook that is gone", b.messages(w), []string(nil))
	_, err = b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	left, err := b.Webhooks(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("left", left, []taskstore.Webhook{})
}
