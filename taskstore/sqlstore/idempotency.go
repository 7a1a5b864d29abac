package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// keyLife is how long an idempotency key is kept.
const keyLife = 24 * time.Hour

// Idempotent gives a try the key for the length of the lease, or returns the state
// of an earlier try. A key whose holder neither finished nor renewed it in time goes
// to the next try. ErrConflict when the key was used with another request hash. Keys
// are kept for a day.
func (s *idempotency) Idempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) (taskstore.KeyedState, error) {
	var state taskstore.KeyedState
	if err := checkTexts("the idempotency key", r.Key, 128, "the request's hash", r.Hash, 128, "its former hash", r.Former, 128, "the holder", r.Holder, 64); err != nil {
		return state, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		state = taskstore.KeyedState{}
		var c script
		c.add(s.sql("DELETE FROM idempotency WHERE tenant_id=? AND k=? AND created_at<@now-?"), r.TenantID, r.Key, keyLife.Milliseconds())
		// An existing row is unchanged. The insert waits for a concurrent writer of it.
		c.insert("idempotency", []string{"tenant_id", "k", "request_hash", "created_at", "holder", "lease_until"},
			[][]any{{r.TenantID, r.Key, r.Hash, raw(s.now()), r.Holder, s.after(lease)}}, s.d.noop("k"))
		c.add(s.sql("UPDATE idempotency SET holder=?, lease_until=@now+? WHERE tenant_id=? AND k=? AND request_hash IN (?,?) AND answer='' AND lease_until<=@now"),
			r.Holder, lease.Milliseconds(), r.TenantID, r.Key, r.Hash, r.Former)
		if err := c.exec(tx); err != nil {
			return err
		}
		k, err := first[idempotencyRow](tx, "SELECT * FROM idempotency WHERE tenant_id=? AND k=?", r.TenantID, r.Key)
		if err != nil {
			return err
		}
		if k == nil {
			return fmt.Errorf("%w: idempotency key %q expired this moment; send the request again", sheaf.ErrUnavailable, r.Key)
		}
		if k.RequestHash != r.Hash && k.RequestHash != r.Former {
			return fmt.Errorf("%w: idempotency key %q was used with another request; use a new key", sheaf.ErrConflict, r.Key)
		}
		state.Since, state.Held, state.Body = toTime(k.CreatedAt), k.Answer == "" && k.Holder == r.Holder, k.BodyDigest
		if k.Answer != "" {
			state.Answer = []byte(s.vault.open(k.Answer, secretContext("answer", k.TenantID, k.K)))
		}
		return nil
	})
	return state, err
}

// changeHeld updates a key that this try holds.
func (s *idempotency) changeHeld(ctx context.Context, r taskstore.KeyedRequest, set string, args ...any) error {
	n, err := exec(s.write(ctx), s.sql("UPDATE idempotency SET "+set+" WHERE tenant_id=? AND k=? AND holder=? AND answer=''"),
		append(args, r.TenantID, r.Key, r.Holder)...)
	if err == nil && n != 1 {
		return fmt.Errorf("%w: idempotency key %q is not held by this request", sheaf.ErrStale, r.Key)
	}
	return err
}

// ReadIdempotent records the digest of the whole body that a try has read, before
// the try acts on it. ErrConflict when an earlier try with the key read another
// body, ErrStale when another try holds the key.
func (s *idempotency) ReadIdempotent(ctx context.Context, r taskstore.KeyedRequest, body string) error {
	if err := checkText("the body's digest", body, 128); err != nil {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		read, err := first[string](tx, "SELECT body_digest FROM idempotency WHERE tenant_id=? AND k=? AND holder=? AND answer=''"+s.d.lock, r.TenantID, r.Key, r.Holder)
		switch {
		case err != nil:
			return err
		case read == nil:
			return fmt.Errorf("%w: idempotency key %q is not held by this request", sheaf.ErrStale, r.Key)
		case *read == body:
			return nil
		case *read != "":
			return fmt.Errorf("%w: idempotency key %q was used with another body; use a new key", sheaf.ErrConflict, r.Key)
		}
		return run(tx, stmt("UPDATE idempotency SET body_digest=? WHERE tenant_id=? AND k=?", body, r.TenantID, r.Key))
	})
}

// RenewIdempotent extends the lease; ErrStale when another try holds the key.
func (s *idempotency) RenewIdempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) error {
	return s.changeHeld(ctx, r, "lease_until=@now+?", lease.Milliseconds())
}

// FinishIdempotent stores the answer for every later try; ErrStale when another try
// holds the key. The answer is text.
func (s *idempotency) FinishIdempotent(ctx context.Context, r taskstore.KeyedRequest, answer []byte) error {
	if len(answer) == 0 || len(answer) > 8<<20 {
		return fmt.Errorf("%w: an answer to be repeated has 1 byte to 8 MB, this one %d bytes", sheaf.ErrInvalid, len(answer))
	}
	if err := checkText("the answer", string(answer), 8<<20); err != nil {
		return err
	}
	return s.changeHeld(ctx, r, "answer=?", s.vault.seal(string(answer), secretContext("answer", r.TenantID, r.Key)))
}

// LeaveIdempotent ends a try with an unknown outcome. The next try gets the key
// immediately and finishes the work.
func (s *idempotency) LeaveIdempotent(ctx context.Context, r taskstore.KeyedRequest) error {
	return s.changeHeld(ctx, r, "lease_until=0")
}
