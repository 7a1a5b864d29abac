package taskstore

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"sheaf"
)

// Most that a tenant's weight and cap can be: beyond these a slip of the
// finger is likelier than a wish.
const (
	MaxTenantWeight = 1_000_000
	MaxTenantCap    = 1_000_000
)

// TenantIDPattern is what the id of a new tenant looks like. Ids are parts of
// the names of stored objects.
const TenantIDPattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`

var tenantID = regexp.MustCompile(TenantIDPattern)

// CheckTenantID reports as ErrInvalid an id that no tenant may be made with.
func CheckTenantID(id string) error {
	if tenantID.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%w: a tenant's id has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", sheaf.ErrInvalid)
}

// TenantChange is what changes of a tenant; what is nil stays. Work is held
// and freed by SetPaused, which takes the tasks along.
type TenantChange struct {
	Name        *string
	Weight, Cap *int
	Documents   *int   // quotas; 0 lifts one
	Bytes       *int64 //
	QueuedTasks *int   //
}

// Apply lays the change over t. ErrInvalid, with t unchanged, when the result
// would be none that a tenant can have.
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

// CheckTenant reports as ErrInvalid shares and quotas that no tenant can have.
func CheckTenant(t *sheaf.Tenant) error {
	switch {
	case t.Weight < 1 || t.Weight > MaxTenantWeight:
		return fmt.Errorf("%w: a tenant's weight is 1 to %d, not %d", sheaf.ErrInvalid, MaxTenantWeight, t.Weight)
	case t.Cap < 1 || t.Cap > MaxTenantCap:
		return fmt.Errorf("%w: a tenant's cap is 1 to %d, not %d; pause the tenant to run none of its tasks", sheaf.ErrInvalid, MaxTenantCap, t.Cap)
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

// KeyScopes are what a key may do, least first. A key that may write may read,
// and one with admin may do everything, for all tenants.
var KeyScopes = []string{"read", "write", "admin"}

// KeyChange is what changes of a key; what is nil stays.
type KeyChange struct {
	Name   *string
	Scopes []string // in place of those it has
}

// Apply lays the change over k. ErrInvalid, with k unchanged, for scopes that
// do not exist or none, and ErrConflict for a key that is revoked.
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

// CheckExpiry reports as ErrInvalid a time at which no key that is made now can
// end; zero is never.
func CheckExpiry(at, now time.Time) error {
	if !at.IsZero() && !at.After(now) {
		return fmt.Errorf("%w: the key would expire at %s, which is past; give a later time, or none", sheaf.ErrInvalid, at.UTC().Format(time.RFC3339))
	}
	return nil
}

// CheckScopes reports as ErrInvalid scopes that do not exist, and none at all.
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
