package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/webhook"
	"sheaf/taskstore"
)

// WebhookPath names a webhook of a dataset.
type WebhookPath struct {
	DatasetPath
	Webhook string `path:"webhook" doc:"id of the webhook" maxLength:"64"`
}

// NewWebhook is the body that creates a webhook.
type NewWebhook struct {
	URL    string   `json:"url" maxLength:"2000" doc:"http:// or https://, on a host that webhooks.hosts names"`
	Events []string `json:"events,omitempty" maxItems:"50" doc:"events to send; empty: all"`
	Secret string   `json:"secret,omitempty" maxLength:"200" doc:"whsec_ and 24 to 64 bytes in base64; default: generated"`
}

// WebhookMade is the response to a new webhook, with its secret.
type WebhookMade struct {
	*taskstore.Webhook
	SecretNote string `json:"secret_note,omitempty" doc:"in place of the secret, when a request is repeated under its Idempotency-Key"`
}

// WebhookChange changes the named fields of a webhook.
type WebhookChange struct {
	URL     *string   `json:"url,omitempty" maxLength:"2000"`
	Events  *[]string `json:"events,omitempty" maxItems:"50"`
	Enabled *bool     `json:"enabled,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *WebhookChange) UnmarshalJSON(b []byte) error {
	type plain WebhookChange
	return decodeChange(b, (*plain)(c))
}

// ReplayRequest selects messages to resend.
type ReplayRequest struct {
	EventIDs OneOf[string]                  `json:"event_ids,omitempty" nullable:"false" maxItems:"1000" doc:"exactly these, in any state"`
	State    OneOf[taskstore.DeliveryState] `json:"state,omitempty" nullable:"false" enum:"pending,delivered,dead" doc:"default dead"`
	Since    time.Time                      `json:"since,omitzero" doc:"only messages from this time on"`
}

// Replayed reports how many messages will be resent.
type Replayed struct {
	Deliveries int `json:"deliveries"`
}

func (s *Server) webhook(ctx context.Context, p WebhookPath) (*taskstore.Webhook, error) {
	ds, err := s.dataset(ctx, p.DatasetPath)
	if err != nil {
		return nil, err
	}
	return s.cfg.Catalog.Webhook(ctx, ds.TenantID, ds.ID, p.Webhook)
}

// checkWebhook rejects a URL or an event that could never be delivered.
func (s *Server) checkWebhook(w *taskstore.Webhook) error {
	for _, e := range w.Events {
		if !slices.Contains(taskstore.WebhookEvents, e) {
			return fmt.Errorf("%w: event %q: choose among %s", sheaf.ErrInvalid, e, strings.Join(taskstore.WebhookEvents, ", "))
		}
	}
	return s.cfg.WebhookHosts.Check(w.URL)
}

// secretless hides the secret, which is shown only once.
func secretless(w *taskstore.Webhook) *taskstore.Webhook {
	if w != nil {
		w.Secret = ""
	}
	return w
}

func (s *Server) webhookRoutes() {
	create := post("/v1/datasets/{ds}/webhooks", "Add a webhook")
	create.DefaultStatus = http.StatusCreated
	create.Description = "Notifies a URL when documents and jobs of the dataset end. Messages and signatures follow Standard Webhooks: the headers webhook-id, webhook-timestamp and webhook-signature (v1, HMAC-SHA256). " +
		"Each is sent at least once; webhook-id is the same in every attempt."
	handle(s, create, func(ctx context.Context, in *struct {
		DatasetPath
		Body NewWebhook
	}) (*output[WebhookMade], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		w := taskstore.Webhook{ID: s.origin(ctx, "").ID(ds.TenantID, "webhook", 0), TenantID: ds.TenantID, DatasetID: ds.ID, URL: in.Body.URL, Events: in.Body.Events, Secret: in.Body.Secret, Enabled: true}
		if w.Secret == "" {
			w.Secret = webhook.NewSecret()
		}
		if err := webhook.CheckSecret(w.Secret); err != nil {
			return nil, err
		}
		if err := s.checkWebhook(&w); err != nil {
			return nil, err
		}
		made, err := s.cfg.Catalog.CreateWebhook(ctx, w)
		if errors.Is(err, sheaf.ErrConflict) || errors.Is(err, sheaf.ErrLimit) {
			if begun, lookErr := s.cfg.Catalog.Webhook(ctx, ds.TenantID, ds.ID, w.ID); lookErr == nil {
				made, err = begun, nil // created by an earlier attempt of this request whose response was lost
			}
		}
		return &output[WebhookMade]{WebhookMade{Webhook: made}}, err
	})
	handle(s, get("/v1/datasets/{ds}/webhooks", "List webhooks"), func(ctx context.Context, in *DatasetPath) (*output[List[taskstore.Webhook]], error) {
		ds, err := s.dataset(ctx, *in)
		if err != nil {
			return nil, err
		}
		all, err := s.cfg.Catalog.Webhooks(ctx, ds.TenantID, ds.ID)
		for i := range all {
			secretless(&all[i])
		}
		return listOf(all, ""), err
	})
	handle(s, get("/v1/datasets/{ds}/webhooks/{webhook}", "Read a webhook"), func(ctx context.Context, in *WebhookPath) (*output[*taskstore.Webhook], error) {
		w, err := s.webhook(ctx, *in)
		return &output[*taskstore.Webhook]{secretless(w)}, err
	})
	handle(s, change(http.MethodPatch, "/v1/datasets/{ds}/webhooks/{webhook}", "Change a webhook"), func(ctx context.Context, in *struct {
		WebhookPath
		Body WebhookChange
	}) (*output[*taskstore.Webhook], error) {
		w, err := s.webhook(ctx, in.WebhookPath)
		if err != nil {
			return nil, err
		}
		if in.Body.URL != nil {
			w.URL = *in.Body.URL
		}
		if in.Body.Events != nil {
			w.Events = *in.Body.Events
		}
		if in.Body.Enabled != nil {
			w.Enabled = *in.Body.Enabled
		}
		if err := s.checkWebhook(w); err != nil {
			return nil, err
		}
		if err := s.cfg.Catalog.UpdateWebhook(ctx, *w); err != nil {
			return nil, err
		}
		w, err = s.webhook(ctx, in.WebhookPath)
		return &output[*taskstore.Webhook]{secretless(w)}, err
	})
	remove := change(http.MethodDelete, "/v1/datasets/{ds}/webhooks/{webhook}", "Remove a webhook and its messages")
	remove.DefaultStatus = http.StatusNoContent
	handle(s, remove, func(ctx context.Context, in *WebhookPath) (*struct{}, error) {
		w, err := s.webhook(ctx, *in)
		if err != nil {
			return nil, err
		}
		return nil, s.cfg.Catalog.DeleteWebhook(ctx, w.TenantID, w.DatasetID, w.ID)
	})
	handle(s, get("/v1/datasets/{ds}/webhooks/{webhook}/deliveries", "List the messages of a webhook"), func(ctx context.Context, in *struct {
		WebhookPath
		Limit  int                       `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"items per page"`
		Cursor string                    `query:"cursor" format:"count-cursor" doc:"previous page's next_cursor"`
		Order  string                    `query:"order" enum:"newest,oldest" default:"newest"`
		State  []taskstore.DeliveryState `query:"state,explode" enum:"pending,delivered,dead" doc:"repeat for OR"`
	}) (*output[List[taskstore.Delivery]], error) {
		w, err := s.webhook(ctx, in.WebhookPath)
		if err != nil {
			return nil, err
		}
		all, next, err := s.cfg.Catalog.Deliveries(ctx, w, in.State, ListInput{Limit: in.Limit, Cursor: in.Cursor, Order: in.Order}.page())
		return listOf(all, next), err
	})
	handle(s, post("/v1/datasets/{ds}/webhooks/{webhook}:replay", "Send messages again"), func(ctx context.Context, in *struct {
		WebhookPath
		Body ReplayRequest
	}) (*output[Replayed], error) {
		w, err := s.webhook(ctx, in.WebhookPath)
		if err != nil {
			return nil, err
		}
		ask := in.Body
		switch {
		case ask.EventIDs == nil && ask.State == nil && ask.Since.IsZero():
			return nil, newProblem(400, "empty_filter", `nothing says which messages are meant; name them by event_ids, state or since: {"state": ["dead"]} sends again all that could not be delivered`)
		case len(ask.EventIDs) > 0 && len(ask.State) > 0:
			return nil, newProblem(400, "", "event_ids are sent again whatever their state; leave out event_ids or state")
		case ask.EventIDs.none() || ask.State.none():
			return &output[Replayed]{}, nil
		}
		n, err := s.cfg.Catalog.ReplayDeliveries(ctx, w, taskstore.Replay{EventIDs: in.Body.EventIDs, States: in.Body.State, Since: in.Body.Since})
		return &output[Replayed]{Replayed{n}}, err
	})
	ping := post("/v1/datasets/{ds}/webhooks/{webhook}:ping", "Send a test message to a webhook")
	ping.DefaultStatus = http.StatusAccepted
	handle(s, ping, func(ctx context.Context, in *WebhookPath) (*output[*taskstore.Delivery], error) {
		w, err := s.webhook(ctx, *in)
		if err != nil {
			return nil, err
		}
		d, err := s.cfg.Catalog.PingWebhook(ctx, w)
		return &output[*taskstore.Delivery]{d}, err
	})
}
