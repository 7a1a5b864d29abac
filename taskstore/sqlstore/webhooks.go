package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// maxWebhooks is the maximum number of webhooks per dataset.
const maxWebhooks = 10

type webhookRow struct {
	ID        string `gorm:"primaryKey"`
	TenantID  string
	DatasetID string
	URL       string
	Secret    string
	Events    string // JSON list
	Enabled   int
	Failures  int
	NotBefore int64
	LastError string
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	UpdatedAt int64 `gorm:"autoUpdateTime:false"`
}

func (webhookRow) TableName() string { return "webhooks" }

func (r webhookRow) toDomain(v vault) taskstore.Webhook {
	w := taskstore.Webhook{ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, URL: r.URL, Secret: v.open(r.Secret, secretContext("webhook", r.TenantID, r.ID)), Events: []string{}, Enabled: r.Enabled != 0,
		Failures: r.Failures, LastError: r.LastError, CreatedAt: toTime(r.CreatedAt), UpdatedAt: toTime(r.UpdatedAt)}
	decode(r.Events, &w.Events)
	return w
}

type deliveryRow struct {
	Seq         int64 `gorm:"primaryKey"`
	WebhookID   string
	TenantID    string
	EventID     string
	Event       string
	JobID       string
	Data        string
	State       string
	Attempts    int
	Claims      int
	Status      int
	Error       string
	NextAt      int64
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
	DeliveredAt int64
}

func (deliveryRow) TableName() string { return "webhook_deliveries" }

func (r deliveryRow) toDomain() taskstore.Delivery {
	d := taskstore.Delivery{Seq: r.Seq, Claims: r.Claims, WebhookID: r.WebhookID, EventID: r.EventID, Event: r.Event, TenantID: r.TenantID, JobID: r.JobID,
		Data: []byte(r.Data), State: taskstore.DeliveryState(r.State), Attempts: r.Attempts, Status: r.Status, Error: r.Error,
		CreatedAt: toTime(r.CreatedAt), DeliveredAt: toTime(r.DeliveredAt)}
	if d.State == taskstore.DeliveryPending {
		d.NextAt = toTime(r.NextAt)
	}
	return d
}

// AnnounceJob writes the messages that the job has ended, if it has. It is called
// after each message about one of the job's documents was committed, so that the
// last call sees the end. Every observer of the same end writes the same message; a
// job that was reopened and ended again is announced again.
func (s *webhooks) AnnounceJob(ctx context.Context, tenantID, jobID string) error {
	ended, err := s.JobEnded(ctx, tenantID, jobID)
	if err != nil || !ended {
		return err
	}
	job, err := s.Job(ctx, tenantID, jobID)
	if err != nil || !job.State.Terminal() {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		return s.tell(tx, message{
			tenant: tenantID, dataset: job.DatasetID, id: fmt.Sprintf("job_%s_%d", jobID, toMillis(job.FinishedAt)), event: "job." + string(job.State),
			data: taskstore.JobNews{DatasetID: job.DatasetID, JobID: jobID, Kind: job.Kind, State: job.State, Documents: job.Documents},
		})
	})
}

// CreateWebhook creates a webhook. ErrLimit when the dataset has the maximum.
func (s *webhooks) CreateWebhook(ctx context.Context, w taskstore.Webhook) (*taskstore.Webhook, error) {
	if err := checkTexts("the webhook's url", w.URL, 2000, "the webhook's secret", w.Secret, 200); err != nil {
		return nil, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		// Locked: concurrent calls cannot both create the last one.
		if _, err := one[string](tx, "dataset", w.DatasetID, "SELECT id FROM datasets WHERE tenant_id=? AND id=?"+s.d.lock, w.TenantID, w.DatasetID); err != nil {
			return err
		}
		n, err := one[int64](tx, "count", "", "SELECT COUNT(*) FROM webhooks WHERE dataset_id=?", w.DatasetID)
		if err != nil {
			return err
		}
		if *n >= maxWebhooks {
			return limitFailure("webhooks of the dataset", *n, 1, maxWebhooks)
		}
		return tx.Model(&webhookRow{}).Create(columns{"id": w.ID, "tenant_id": w.TenantID, "dataset_id": w.DatasetID, "url": w.URL, "secret": s.vault.seal(w.Secret, secretContext("webhook", w.TenantID, w.ID)),
			"events": encodeList(w.Events), "enabled": flag(w.Enabled), "last_error": "", "created_at": gorm.Expr(s.now()), "updated_at": gorm.Expr(s.now())}).Error
	})
	if err != nil {
		return nil, fmt.Errorf("create webhook: %w", err)
	}
	return s.Webhook(ctx, w.TenantID, w.DatasetID, w.ID)
}

// Webhook finds a webhook by its tenant, dataset and id.
func (s *webhooks) Webhook(ctx context.Context, tenantID, datasetID, id string) (*taskstore.Webhook, error) {
	return get(s.write(ctx), "webhook", id, s.toWebhook, "id=? AND tenant_id=? AND dataset_id=?", id, tenantID, datasetID)
}

// Webhooks lists the webhooks of a dataset.
func (s *webhooks) Webhooks(ctx context.Context, tenantID, datasetID string) ([]taskstore.Webhook, error) {
	rows, err := all[webhookRow](s.read(ctx), "SELECT * FROM webhooks WHERE dataset_id=? AND tenant_id=? ORDER BY id", datasetID, tenantID)
	return mapped(rows, s.toWebhook), err
}

// UpdateWebhook writes URL, Events and Enabled, and clears the failures.
func (s *webhooks) UpdateWebhook(ctx context.Context, w taskstore.Webhook) error {
	if err := checkText("the webhook's url", w.URL, 2000); err != nil {
		return err
	}
	return changed(s.write(ctx).Exec(s.sql("UPDATE webhooks SET url=?, events=?, enabled=?, failures=0, not_before=0, last_error='', updated_at=@now WHERE id=? AND tenant_id=? AND dataset_id=?"),
		w.URL, encodeList(w.Events), flag(w.Enabled), w.ID, w.TenantID, w.DatasetID), "webhook", w.ID)
}

// DeleteWebhook deletes a webhook with its messages.
func (s *webhooks) DeleteWebhook(ctx context.Context, tenantID, datasetID, id string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		if err := changed(tx.Exec("DELETE FROM webhooks WHERE id=? AND tenant_id=? AND dataset_id=?", id, tenantID, datasetID), "webhook", id); err != nil {
			return err
		}
		return tx.Exec("DELETE FROM webhook_deliveries WHERE webhook_id=?", id).Error
	})
}

// Deliveries lists messages to a webhook, in the given states or all.
func (s *webhooks) Deliveries(ctx context.Context, h *taskstore.Webhook, states []taskstore.DeliveryState, p taskstore.Page) ([]taskstore.Delivery, string, error) {
	var w where
	w.add("webhook_id=?", h.ID)
	w.when(len(states) > 0, "state IN ?", states)
	if _, err := strconv.ParseInt(p.Cursor, 10, 64); p.Cursor != "" && err != nil {
		return nil, "", fmt.Errorf("%w: cursor %q is none of this list", sheaf.ErrInvalid, clip(p.Cursor, 64))
	}
	return page(s.read(ctx), "SELECT * FROM webhook_deliveries", w, "seq", p, func(r deliveryRow) string { return strconv.FormatInt(r.Seq, 10) }, deliveryRow.toDomain)
}

// ReplayDeliveries makes deliveries pending again and returns how many.
func (s *webhooks) ReplayDeliveries(ctx context.Context, h *taskstore.Webhook, r taskstore.Replay) (n int, err error) {
	var w where
	w.add("webhook_id=?", h.ID)
	switch {
	case len(r.EventIDs) > 0:
		w.add("event_id IN ?", r.EventIDs)
	case len(r.States) > 0:
		w.add("state IN ?", r.States)
	default:
		w.add("state=?", string(taskstore.DeliveryDead))
	}
	w.when(!r.Since.IsZero(), "created_at>=?", toMillis(r.Since))
	err = s.tx(ctx, func(tx *gorm.DB) error {
		// Claims grows: an attempt in progress must not end the new one.
		if n, err = exec(tx, s.sql("UPDATE webhook_deliveries SET state='pending', attempts=0, claims=claims+1, next_at=@now")+w.String(), w.args...); err != nil || n == 0 {
			return err
		}
		return tx.Exec("UPDATE webhooks SET not_before=0 WHERE id=?", h.ID).Error
	})
	return n, err
}

// PingWebhook writes a message of kind WebhookPing.
func (s *webhooks) PingWebhook(ctx context.Context, w *taskstore.Webhook) (*taskstore.Delivery, error) {
	id := "ping_" + sheaf.NewID()
	err := insertRows(s.write(ctx), "webhook_deliveries", []string{"webhook_id", "tenant_id", "event_id", "event", "data", "error", "next_at", "created_at"},
		[][]any{{w.ID, w.TenantID, id, taskstore.WebhookPing, encode(map[string]string{"dataset_id": w.DatasetID}), "", raw(s.now()), raw(s.now())}}, "")
	if err != nil {
		return nil, translate(err)
	}
	return get(s.write(ctx), "webhook", w.ID, deliveryRow.toDomain, "webhook_id=? AND event_id=?", w.ID, id)
}

// AnyWebhook reports whether any tenant has an enabled webhook.
func (s *webhooks) AnyWebhook(ctx context.Context) (bool, error) {
	found, err := first[int](s.read(ctx), "SELECT 1 FROM webhooks WHERE enabled=1 LIMIT 1")
	return found != nil, err
}

// DueWebhooks lists enabled webhooks, with their secrets, that have something
// to send now and are not waiting after a failure, by id from the one after after.
func (s *webhooks) DueWebhooks(ctx context.Context, after string, limit int) ([]taskstore.Webhook, error) {
	rows, err := all[webhookRow](s.write(ctx), s.sql(`SELECT w.* FROM webhooks w WHERE w.id>? AND w.enabled=1 AND w.not_before<=@now AND EXISTS (
		SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id=w.id AND d.state='pending' AND d.next_at<=@now) ORDER BY w.id LIMIT ?`), after, limit)
	return mapped(rows, s.toWebhook), err
}

// lookAhead is how many messages after those claimed are looked at for others about
// the same jobs.
const lookAhead = 64

// ClaimDeliveries claims due messages, oldest first, for the duration of the lease.
// Attempts counts this one.
func (s *webhooks) ClaimDeliveries(ctx context.Context, webhookID string, limit int, lease time.Duration) (out []taskstore.Delivery, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		rows, err := all[deliveryRow](tx, s.sql("SELECT * FROM webhook_deliveries WHERE webhook_id=? AND state='pending' AND next_at<=@now ORDER BY next_at, seq LIMIT ?")+s.d.skip, webhookID, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		seqs := make([]int64, len(rows))
		for i := range rows {
			seqs[i] = rows[i].Seq
			rows[i].Attempts++
			rows[i].Claims++
		}
		out = mapped(rows, deliveryRow.toDomain)
		if err := tx.Exec(s.sql("UPDATE webhook_deliveries SET attempts=attempts+1, claims=claims+1, next_at=@now+? WHERE seq IN ?"), lease.Milliseconds(), seqs).Error; err != nil {
			return err
		}
		next, err := all[deliveryRow](tx, s.sql("SELECT seq, job_id, attempts FROM webhook_deliveries WHERE webhook_id=? AND state='pending' AND next_at<=@now ORDER BY next_at, seq LIMIT ?"), webhookID, lookAhead)
		if err != nil {
			return err
		}
		// By their numbers, since of two concurrent claims one must be the last. A
		// message that was tried before does not count: it may wait for hours.
		last := map[string]int64{}
		for _, r := range next {
			if r.Attempts == 0 {
				last[r.JobID] = max(last[r.JobID], r.Seq)
			}
		}
		for i := range out {
			out[i].Followed = last[out[i].JobID] > out[i].Seq
		}
		return nil
	})
	return out, err
}

// EndDelivery stores the outcome of a claimed message; an ended claim changes
// nothing.
func (s *webhooks) EndDelivery(ctx context.Context, d *taskstore.Delivery, end taskstore.DeliveryEnd) error {
	const held = " WHERE seq=? AND claims=? AND state='pending'"
	switch {
	case end.Unwanted:
		return run(s.write(ctx), stmt("DELETE FROM webhook_deliveries"+held, d.Seq, d.Claims))
	case end.Untried:
		return run(s.write(ctx), stmt(s.sql("UPDATE webhook_deliveries SET attempts=attempts-1, claims=claims+1, next_at=@now"+held), d.Seq, d.Claims))
	}
	delivered := "0"
	if end.State == taskstore.DeliveryDelivered {
		delivered = s.now()
	}
	text := clip(end.Error, 1000)
	return s.tx(ctx, func(tx *gorm.DB) error {
		res := tx.Exec(s.sql("UPDATE webhook_deliveries SET state=?, status=?, error=?, next_at=@now+?, delivered_at="+delivered+held),
			string(end.State), end.Status, text, end.Delay.Milliseconds(), d.Seq, d.Claims)
		if res.Error != nil || res.RowsAffected == 0 {
			return res.Error
		}
		if end.State == taskstore.DeliveryDelivered {
			return tx.Exec("UPDATE webhooks SET failures=0, not_before=0, last_error='' WHERE id=? AND failures<>0", d.WebhookID).Error
		}
		if end.Hold == 0 && !end.Disable {
			return nil
		}
		return tx.Exec(s.sql("UPDATE webhooks SET failures=failures+1, not_before=@now+?, last_error=?, enabled=CASE WHEN ?=1 THEN 0 ELSE enabled END WHERE id=?"),
			end.Hold.Milliseconds(), text, flag(end.Disable), d.WebhookID).Error
	})
}
