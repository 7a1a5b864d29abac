package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// TenantPath names a tenant.
type TenantPath struct {
	Tenant string `path:"tenant" doc:"id of the tenant" maxLength:"64"`
}

// TenantPage pages through tenants by id.
type TenantPage struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"items per page"`
	Cursor string `query:"cursor" maxLength:"64" doc:"previous page's next_cursor: the id of its last tenant"`
}

func (p TenantPage) page() taskstore.Page { return taskstore.Page{Limit: p.Limit, Cursor: p.Cursor} }

// NewTenant is the body that creates a tenant.
type NewTenant struct {
	ID     string   `json:"id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" patternDescription:"1 to 64 letters, digits, dots, dashes and underscores that begin with a letter or digit" doc:"permanent; the name can be changed"`
	Name   string   `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"display name; default: the id"`
	Weight int      `json:"weight,omitempty" minimum:"1" maximum:"1000000" default:"1" doc:"relative share of the executors"`
	Cap    int      `json:"cap,omitempty" minimum:"0" maximum:"1000000" doc:"maximum running tasks; 0, the default: as many as the fleet has workers"`
	Quota  NewQuota `json:"quota,omitempty" doc:"limits on what is held; omitted ones have none"`
}

// TenantChange is the body that changes a tenant; omitted fields are kept.
type TenantChange struct {
	Name   *string      `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"its name"`
	Weight *int         `json:"weight,omitempty" minimum:"1" maximum:"1000000" doc:"relative share of the executors"`
	Cap    *int         `json:"cap,omitempty" minimum:"0" maximum:"1000000" doc:"maximum running tasks; 0: as many as the fleet has workers; those above a lowered cap finish first"`
	Paused *bool        `json:"paused,omitempty" doc:"holds queued tasks; running ones go on"`
	Quota  *QuotaChange `json:"quota,omitempty" doc:"limits on what is held; omitted ones stay"`
}

// NewQuota bounds what a new tenant may hold.
type NewQuota struct {
	Documents   int   `json:"documents,omitempty" minimum:"0" doc:"0 for no limit"`
	Bytes       int64 `json:"bytes,omitempty" minimum:"0" doc:"of originals; 0 for no limit"`
	QueuedTasks int   `json:"queued_tasks,omitempty" minimum:"0" doc:"0 for no limit"`
}

// QuotaChange changes the limits it names.
type QuotaChange struct {
	Documents   *int   `json:"documents,omitempty" minimum:"0" doc:"0 for no limit"`
	Bytes       *int64 `json:"bytes,omitempty" minimum:"0" doc:"of originals; 0 for no limit"`
	QueuedTasks *int   `json:"queued_tasks,omitempty" minimum:"0" doc:"0 for no limit"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *TenantChange) UnmarshalJSON(b []byte) error {
	type plain TenantChange
	return decodeChange(b, (*plain)(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *QuotaChange) UnmarshalJSON(b []byte) error {
	type plain QuotaChange
	return decodeChange(b, (*plain)(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *KeyChange) UnmarshalJSON(b []byte) error {
	type plain KeyChange
	return decodeChange(b, (*plain)(c))
}

// decodeChange decodes a change into a struct. It rejects null except for fields
// with a default to reset to; null would otherwise count as omitted.
func decodeChange(b []byte, to any, defaulted ...string) error {
	var said map[string]json.RawMessage
	if err := json.Unmarshal(b, &said); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if string(said[name]) == "null" && !slices.Contains(defaulted, name) {
			return fmt.Errorf("%s is null, and has no default to go back to; give it a value, or leave it out to keep what it is", name)
		}
	}
	return json.Unmarshal(b, to)
}

func (c TenantChange) domain() taskstore.TenantChange {
	out := taskstore.TenantChange{Name: c.Name, Weight: c.Weight, Cap: c.Cap}
	if q := c.Quota; q != nil {
		out.Documents, out.Bytes, out.QueuedTasks = q.Documents, q.Bytes, q.QueuedTasks
	}
	return out
}

// TenantAnswer is a tenant with its usage against its quotas.
type TenantAnswer struct {
	sheaf.Tenant
	Holds sheaf.Quota `json:"holds" doc:"what counts against the quota now"`
}

// ChangedTenant is a tenant after a change, or as it would be.
type ChangedTenant struct {
	sheaf.Tenant
	DryRun bool `json:"dry_run,omitempty" doc:"nothing was changed: a preview"`
}

// KeyPath names a key of a tenant.
type KeyPath struct {
	TenantPath
	Key string `path:"key" doc:"id of the key, which is not its secret" maxLength:"64"`
}

// KeyChange is the body that changes a key; omitted fields are kept.
type KeyChange struct {
	Name   *string       `json:"name,omitempty" maxLength:"255" doc:"what the key is used for"`
	Scopes OneOf[string] `json:"scopes,omitempty" nullable:"false" minItems:"1" maxItems:"3" enum:"read,write,admin" doc:"replace those that the key has"`
}

// NewKey is the body that creates a key.
type NewKey struct {
	Name      string        `json:"name,omitempty" maxLength:"255" doc:"what the key is used for"`
	Scopes    OneOf[string] `json:"scopes,omitempty" nullable:"false" minItems:"1" maxItems:"3" enum:"read,write,admin" doc:"what it may do; default: write. A key with write may also read, and one with admin may do everything, for all tenants"`
	ExpiresAt time.Time     `json:"expires_at,omitzero" doc:"from then on it is refused; default: never"`
}

// CreatedKey is a new key, or what it would be.
type CreatedKey struct {
	sheaf.Key
	Secret string `json:"secret,omitempty" doc:"the key that requests send. It is shown only once: only its hash is stored"`
	DryRun bool   `json:"dry_run,omitempty" doc:"nothing was created: a preview"`
}

// ChangedKey is a key after a change, or as it would be.
type ChangedKey struct {
	sheaf.Key
	DryRun bool `json:"dry_run,omitempty" doc:"nothing was changed: a preview"`
}

// tenantRoutes registers the operator's routes: tenants with their shares, quotas
// and keys, and all queues.
func (s *Server) tenantRoutes() {
	handle(s, needs(get("/v1/admin/queues", "Read the queues of all tenants"), scopeAdmin), func(ctx context.Context, in *TenantPage) (*output[List[taskstore.TenantQueue]], error) {
		qs, next, err := s.cfg.Catalog.Queues(ctx, in.page())
		return listOf(qs, next), err
	})
	handle(s, needs(get("/v1/admin/tenants", "List tenants"), scopeAdmin), func(ctx context.Context, in *TenantPage) (*output[List[sheaf.Tenant]], error) {
		ts, next, err := s.cfg.Catalog.Tenants(ctx, in.page())
		return listOf(ts, next), err
	})
	create := needs(post("/v1/admin/tenants", "Create a tenant with its dataset \"default\""), scopeAdmin)
	create.DefaultStatus = http.StatusCreated
	handle(s, create, func(ctx context.Context, in *struct{ Body NewTenant }) (*output[*sheaf.Tenant], error) {
		b := in.Body
		if b.Name == "" {
			b.Name = b.ID
		}
		t, err := s.cfg.Catalog.CreateTenant(ctx, sheaf.Tenant{ID: b.ID, Name: b.Name, Weight: b.Weight, Cap: b.Cap, Quota: sheaf.Quota(b.Quota)})
		if err != nil {
			return nil, err
		}
		_, err = s.cfg.Catalog.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: t.ID, Name: "default"})
		if errors.Is(err, sheaf.ErrConflict) {
			err = nil
		}
		return &output[*sheaf.Tenant]{t}, err
	})
	handle(s, needs(get("/v1/admin/tenants/{tenant}", "Read a tenant"), scopeAdmin), func(ctx context.Context, in *TenantPath) (*output[TenantAnswer], error) {
		t, err := s.cfg.Catalog.Tenant(ctx, in.Tenant)
		if err != nil {
			return nil, err
		}
		held, err := s.cfg.Catalog.QuotaUsage(ctx, t.ID)
		return &output[TenantAnswer]{TenantAnswer{*t, held}}, err
	})
	patch := needs(change(http.MethodPatch, "/v1/admin/tenants/{tenant}", "Change a tenant"), scopeAdmin)
	patch.Description = "What is named is changed and the rest stays. It takes effect with the next task that starts and the next upload."
	handle(s, patch, func(ctx context.Context, in *struct {
		TenantPath
		DryRunParam
		Body TenantChange
	}) (*output[ChangedTenant], error) {
		t, err := s.changeTenant(ctx, in.Tenant, in.Body, in.DryRun)
		if err != nil {
			return nil, err
		}
		return &output[ChangedTenant]{ChangedTenant{*t, in.DryRun}}, nil
	})
	s.keyRoutes()
}

// changeTenant changes a tenant, or returns what a change would produce. Only the
// keeper applies a new share to the queue, so that of two changes the later one
// wins.
func (s *Server) changeTenant(ctx context.Context, id string, to TenantChange, dryRun bool) (*sheaf.Tenant, error) {
	if dryRun {
		t, err := s.cfg.Catalog.Tenant(ctx, id)
		if err != nil {
			return nil, err
		}
		if to.Paused != nil {
			t.Paused = *to.Paused
		}
		return t, to.domain().Apply(t)
	}
	t, err := s.cfg.Catalog.ChangeTenant(ctx, id, to.domain())
	if err != nil {
		return nil, err
	}
	if to.Paused != nil { // even if already so: this completes an interrupted pause
		if _, err := s.cfg.Ingest.Pause(ctx, id, taskstore.PauseScope{Tenant: true}, *to.Paused); err != nil {
			return nil, err
		}
		t.Paused = *to.Paused
	}
	s.cfg.Ingest.Wake(ctx)
	return t, nil
}

func (s *Server) keyRoutes() {
	handle(s, needs(get("/v1/admin/tenants/{tenant}/keys", "List a tenant's keys, without their secrets"), scopeAdmin), func(ctx context.Context, in *struct {
		TenantPath
		ListInput
	}) (*output[List[sheaf.Key]], error) {
		if _, err := s.cfg.Catalog.Tenant(ctx, in.Tenant); err != nil {
			return nil, err
		}
		ks, next, err := s.cfg.Catalog.Keys(ctx, in.Tenant, in.page())
		return listOf(ks, next), err
	})
	create := needs(post("/v1/admin/tenants/{tenant}/keys", "Create a key; its secret is only in this answer"), scopeAdmin)
	create.DefaultStatus = http.StatusCreated
	handle(s, create, func(ctx context.Context, in *struct {
		TenantPath
		DryRunParam
		Body NewKey
	}) (*output[CreatedKey], error) {
		k := sheaf.Key{TenantID: in.Tenant, Name: in.Body.Name, Scopes: in.Body.Scopes, ExpiresAt: in.Body.ExpiresAt}
		if k.Scopes == nil {
			k.Scopes = []string{scopeWrite}
		}
		made, secret, err := MakeKey(ctx, s.cfg.Catalog, k, in.DryRun)
		if err != nil {
			return nil, err
		}
		if !in.DryRun {
			s.auditKey(ctx, "created", made)
		}
		return &output[CreatedKey]{CreatedKey{*made, secret, in.DryRun}}, nil
	})
	patch := needs(change(http.MethodPatch, "/v1/admin/tenants/{tenant}/keys/{key}", "Change a key's name and scopes"), scopeAdmin)
	patch.Description = "What is named is changed and the rest stays. It applies from the next request."
	handle(s, patch, func(ctx context.Context, in *struct {
		KeyPath
		DryRunParam
		Body KeyChange
	}) (*output[ChangedKey], error) {
		to := taskstore.KeyChange{Name: in.Body.Name, Scopes: in.Body.Scopes}
		k, err := s.cfg.Catalog.Key(ctx, in.Tenant, in.Key)
		switch {
		case err != nil:
			return nil, err
		case to.Scopes != nil && isOwn(ctx, k) && !allows(to.Scopes, scopeAdmin):
			return nil, ownKey("give up its scope admin")
		case in.DryRun:
			err = to.Apply(k)
		default:
			if k, err = s.cfg.Catalog.ChangeKey(ctx, in.Tenant, in.Key, to); err == nil {
				s.auditKey(ctx, "changed", k)
			}
		}
		if err != nil {
			return nil, err
		}
		return &output[ChangedKey]{ChangedKey{*k, in.DryRun}}, nil
	})
	revoke := needs(change(http.MethodDelete, "/v1/admin/tenants/{tenant}/keys/{key}", "Revoke a key for good"), scopeAdmin)
	revoke.Description = "The next request with the key is refused. Revoking it again changes nothing."
	handle(s, revoke, func(ctx context.Context, in *struct {
		KeyPath
		DryRunParam
	}) (*output[ChangedKey], error) {
		k, err := s.cfg.Catalog.Key(ctx, in.Tenant, in.Key)
		if err != nil {
			return nil, err
		}
		if isOwn(ctx, k) {
			return nil, ownKey("be revoked")
		}
		if !in.DryRun {
			if err := s.cfg.Catalog.RevokeKey(ctx, in.Tenant, in.Key); err != nil {
				return nil, err
			}
			if k, err = s.cfg.Catalog.Key(ctx, in.Tenant, in.Key); err != nil {
				return nil, err
			}
			s.auditKey(ctx, "revoked", k)
		}
		return &output[ChangedKey]{ChangedKey{*k, in.DryRun}}, nil
	})
}

// auditKey logs what was done to a key, and by which key.
func (s *Server) auditKey(ctx context.Context, done string, k *sheaf.Key) {
	by, _ := ctx.Value(principalKey).(principal)
	attrs := []any{"audit", "key." + done, "key", k.ID, "of", k.TenantID, "scopes", k.Scopes, "by", by.key}
	if !k.ExpiresAt.IsZero() {
		attrs = append(attrs, "expires", k.ExpiresAt)
	}
	s.log.InfoContext(ctx, "API key "+done, attrs...)
}

// keyMaker is what MakeKey needs from a store.
type keyMaker interface {
	Tenant(ctx context.Context, id string) (*sheaf.Tenant, error)
	CreateKey(ctx context.Context, k sheaf.Key, hash string) error
	Key(ctx context.Context, tenantID, id string) (*sheaf.Key, error)
}

// MakeKey creates a key with a new id and secret, and returns both. A dry run
// performs the same checks and returns the key without either.
func MakeKey(ctx context.Context, store keyMaker, k sheaf.Key, dryRun bool) (made *sheaf.Key, secret string, err error) {
	if _, err := store.Tenant(ctx, k.TenantID); err != nil {
		return nil, "", err
	}
	if err := errors.Join(taskstore.CheckScopes(k.Scopes), taskstore.CheckExpiry(k.ExpiresAt, time.Now())); err != nil || dryRun {
		return &k, "", err
	}
	k.ID, secret = sheaf.NewID(), newSecret()
	if err := store.CreateKey(ctx, k, HashKey(secret)); err != nil {
		return nil, "", err
	}
	made, err = store.Key(ctx, k.TenantID, k.ID)
	return made, secret, err
}

// newSecret returns an API key: 32 random bytes with a recognizable prefix.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
	return "sheaf_" + hex.EncodeToString(b[:])
}

// isOwn reports whether k is the key that made the request.
func isOwn(ctx context.Context, k *sheaf.Key) bool {
	p, _ := ctx.Value(principalKey).(principal)
	return p.key != "" && p.key == k.ID
}

// ownKey rejects a change that would lock the caller out.
func ownKey(what string) error {
	return newProblem(409, "", "a key cannot "+what+" in a request that is made with it; use another key with the scope admin, or `sheaf key` on the server")
}
