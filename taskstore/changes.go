package taskstore

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"sheaf"
)

// Maximum weight and cap of a tenant: larger values are more likely typos than
// intent.
const (
	MaxTenantWeight = 1_000_000
	MaxTenantCap    = 1_000_000
)

// TenantIDPattern is the pattern of new tenant ids. Ids are part of the names of
// stored objects.
const TenantIDPattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`

var tenantID = regexp.MustCompile(TenantIDPattern)

// CheckTenantID rejects, with ErrInvalid, an id that a new tenant may not have.
func CheckTenantID(id string) error {
	if tenantID.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%w: a tenant's id has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", sheaf.ErrInvalid)
}

// TenantChange is a change to a tenant; nil fields stay as they are. Pausing is
// SetPaused's job, which also updates the tasks.
type TenantChange struct {
	Name        *string
	Weight, Cap *int
	Documents   *int   // quotas; 0 removes one
	Bytes       *int64 //
	QueuedTasks *int   //
}

// Apply applies the change to t. If the result would be invalid it returns
// ErrInvalid and leaves t unchanged.
func (c TenantChange) Apply(t *sheaf.Tenant) error {
	to := *t
	set(&to.Name, c.Name)
	set(&to.Weight, c.Weight)
	set(&to.Cap, c.Cap)
	set(&to.Quota.Documents, c.Documents)
	set(&to.Quota.Bytes, c.Bytes)
	set(&to.Quota.QueuedTasks, c.QueuedTasks)
	if err := CheckTenant(&to); err != nil {
		return err
	}
	*t = to
	return nil
}

// CheckTenant rejects, with ErrInvalid, invalid shares and quotas.
func CheckTenant(t *sheaf.Tenant) error {
	switch {
	case t.Weight < 1 || t.Weight > MaxTenantWeight:
		return fmt.Errorf("%w: a tenant's weight is 1 to %d, not %d", sheaf.ErrInvalid, MaxTenantWeight, t.Weight)
	case t.Cap < 0 || t.Cap > MaxTenantCap:
		return fmt.Errorf("%w: a tenant's cap is 1 to %d, or 0 for as many tasks as the fleet has workers, not %d; pause the tenant to run none of its tasks", sheaf.ErrInvalid, MaxTenantCap, t.Cap)
	case t.Quota.Documents < 0 || t.Quota.Bytes < 0 || t.Quota.QueuedTasks < 0:
		return fmt.Errorf("%w: a quota is at least 0; 0 means no bound", sheaf.ErrInvalid)
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// KeyScopes are the scopes of a key, weakest first. write includes read, and admin
// allows everything, for all tenants.
var KeyScopes = []string{"read", "write", "admin"}

// KeyChange is a change to a key; nil fields stay as they are.
type KeyChange struct {
	Name   *string
	Scopes []string // replaces the current ones
}

// Apply applies the change to k. It returns ErrInvalid for unknown or no scopes and
// ErrConflict for a revoked key, leaving k unchanged.
func (c KeyChange) Apply(k *sheaf.Key) error {
	if !k.RevokedAt.IsZero() {
		return fmt.Errorf("%w: key %s is revoked and stays so; create a new one", sheaf.ErrConflict, k.ID)
	}
	if c.Scopes != nil {
		if err := CheckScopes(c.Scopes); err != nil {
			return err
		}
		k.Scopes = slices.DeleteFunc(slices.Clone(KeyScopes), func(s string) bool { return !slices.Contains(c.Scopes, s) })
	}
	set(&k.Name, c.Name)
	return nil
}

// CheckExpiry rejects, with ErrInvalid, an expiry in the past; zero is never.
func CheckExpiry(at, now time.Time) error {
	if !at.IsZero() && !at.After(now) {
		return fmt.Errorf("%w: the key would expire at %s, which is past; give a later time, or none", sheaf.ErrInvalid, at.UTC().Format(time.RFC3339))
	}
	return nil
}

// CheckScopes rejects, with ErrInvalid, unknown scopes and an empty list.
func CheckScopes(scopes []string) error {
	if len(scopes) == 0 {
		return fmt.Errorf("%w: a key has at least one scope: read, write or admin; revoke a key that may do nothing", sheaf.ErrInvalid)
	}
	for _, s := range scopes {
		if !slices.Contains(KeyScopes, s) {
			return fmt.Errorf("%w: there is no scope %q; there are read, write and admin", sheaf.ErrInvalid, s)
		}
	}
	return nil
}
