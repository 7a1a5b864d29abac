package taskstore

import (
	"encoding/json"
	"slices"
	"time"

	"sheaf"
)

// Webhook is an address to notify when a dataset's documents and jobs end. The
// message and its signature follow Standard Webhooks 1.0.
type Webhook struct {
	ID        string    `json:"id"`
	TenantID  string    `json:"-"`
	DatasetID string    `json:"dataset_id"`
	URL       string    `json:"url"`
	Events    []string  `json:"events"`           // events to send; empty: all
	Secret    string    `json:"secret,omitempty"` // key of the signature, whsec_ and base64; shown once, when the webhook is created
	Enabled   bool      `json:"enabled"`
	Failures  int       `json:"failures"` // consecutive failed attempts
	LastError string    `json:"last_error,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// WebhookEvents lists the events a webhook may receive, besides WebhookPing.
var WebhookEvents = []string{
	"document.succeeded", "document.partially_succeeded", "document.failed", "document.canceled", "document.deleted",
	"job.succeeded", "job.partially_succeeded", "job.failed", "job.canceled",
}

// WebhookPing is the event of a test message sent on request.
const WebhookPing = "ping"

// Wants reports whether the webhook should receive an event.
func (w *Webhook) Wants(event string) bool {
	return len(w.Events) == 0 || event == WebhookPing || slices.Contains(w.Events, event)
}

// DeliveryState is the state of one message to one webhook.
type DeliveryState string

const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryDead      DeliveryState = "dead" // given up; a replay sends it again
)

// Delivery is one message to one webhook.
type Delivery struct {
	Seq         int64           `json:"-"`
	Claims      int             `json:"-"` // fences an attempt superseded by another
	WebhookID   string          `json:"webhook_id"`
	EventID     string          `json:"event_id"` // the webhook-id header: the same in every attempt and replay
	Event       string          `json:"event"`
	TenantID    string          `json:"-"`
	JobID       string          `json:"job_id,omitempty"`
	Data        json.RawMessage `json:"data"`
	State       DeliveryState   `json:"state"`
	Attempts    int             `json:"attempts"`
	Status      int             `json:"status,omitempty"` // HTTP status of the last answer
	Error       string          `json:"error,omitempty"`
	NextAt      time.Time       `json:"next_at,omitzero"`
	CreatedAt   time.Time       `json:"created_at"`
	DeliveredAt time.Time       `json:"delivered_at,omitzero"`
	// Followed says that a later message about the same job waits to be claimed for
	// the first time, so that this one is not the job's last.
	Followed bool `json:"-"`
}

// DocumentNews is the data of a message about a document.
type DocumentNews struct {
	DatasetID  string              `json:"dataset_id"`
	DocumentID string              `json:"document_id"`
	Name       string              `json:"name"`
	Generation int                 `json:"generation"`
	JobID      string              `json:"job_id,omitempty"`
	State      sheaf.DocumentState `json:"state"`
	Failure    *sheaf.Failure      `json:"failure,omitempty"`
}

// JobNews is the data of a message about a job.
type JobNews struct {
	DatasetID string              `json:"dataset_id"`
	JobID     string              `json:"job_id"`
	Kind      sheaf.JobKind       `json:"kind"`
	State     sheaf.DocumentState `json:"state"`
	Documents sheaf.JobDocuments  `json:"documents"`
}

// Replay selects deliveries to resend: those of the named events or, if none is
// named, those that were given up, all of them or since a time.
type Replay struct {
	EventIDs []string
	States   []DeliveryState // empty: the dead
	Since    time.Time
}

// DeliveryEnd is the outcome of an attempt.
type DeliveryEnd struct {
	State  DeliveryState // pending: retry after Delay
	Status int           // of the response, 0 without one
	Error  string
	Delay  time.Duration
	Hold   time.Duration // how long the whole webhook waits after a failure; 0 counts none
	// Untried returns the message as if it had not been claimed.
	Untried bool
	// Unwanted drops a message that the webhook did not subscribe to.
	Unwanted bool
	// Disable turns the webhook off; Error says why.
	Disable bool
}
