package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// keyLife is how long an idempotency key is remembered.
const keyLife = 24 * time.Hour

// Idempotent gives a try the key for the length of the lease, or says what
// became of an earlier one. A key whose holder neither ended nor renewed it in
// time is given to the next try. ErrConflict when the key was used with another
// request hash. Keys are remembered for a day.
func (s *idempotency) Idempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) (taskstore.KeyedState, error) {
	var state taskstore.KeyedState
	if err := checkTexts("the idempotency key", r.Key, 128, "the request's hash", r.Hash, 128, "its former hash", r.Former, 128, "the holder", r.Holder, 64); err != nil {
		return state, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		state = taskstore.KeyedState{}
		if err := tx.Exec(s.sql("DELETE FROM idempotency WHERE tenant_id=? AND k=? AND created_at<@now-?"), r.TenantID, r.Key, keyLife.Milliseconds()).Error; err != nil {
			return err
		}
		until := fmt.Sprintf("%s+%d", s.now(), lease.Milliseconds())
		// Nothing happens where the row is there; else it waits for whoever is writing it.
		if err := insertRows(tx, "idempotency", []string{"tenant_id", "k", "request_hash", "created_at", "holder", "lease_until"},
			[][]any{{r.TenantID, r.Key, r.Hash, raw(s.now()), r.Holder, raw(until)}}, s.d.noop("k")); err != nil {
			return err
		}
		if err := tx.Exec("UPDATE idempotency SET holder=?, lease_until="+until+" WHERE tenant_id=? AND k=? AND request_hash IN (?,?) AND answer='' AND lease_until<="+s.now(),
			r.Holder, r.TenantID, r.Key, r.Hash, r.Former).Error; err != nil {
			return err
		}
		var rows []idempotencyRow
		if err := tx.Raw("SELECT * FROM idempotency WHERE tenant_id=? AND k=?", r.TenantID, r.Key).Scan(&rows).Error; err != nil {
			return err
		}
		if len(rows) != 1 {
			return fmt.Errorf("%w: idempotency key %q expired this moment; send the request again", sheaf.ErrUnavailable, r.Key)
		}
		k := rows[0]
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

// changeHeld changes a key that this try holds.
func (s *idempotency) changeHeld(ctx context.Context, r taskstore.KeyedRequest, set string, args ...any) error {
	res := s.w.WithContext(ctx).Exec(s.sql("UPDATE idempotency SET "+set+" WHERE tenant_id=? AND k=? AND holder=? AND answer=''"),
		append(args, r.TenantID, r.Key, r.Holder)...)
	if res.Error != nil {
		return translate(res.Error)
	}
	if res.RowsAffected != 1 {
		return fmt.Errorf("%w: idempotency key %q is not held by this request", sheaf.ErrStale, r.Key)
	}
	return nil
}

// ReadIdempotent notes the digest of the whole body that a try has read, before
// it makes anything of it. ErrConflict when an earlier try of the key read
// another body, ErrStale when another try has the key.
func (s *idempotency) ReadIdempotent(ctx context.Context, r taskstore.KeyedRequest, body string) error {
	if err := checkText("the body's digest", body, 128); err != nil {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		var read []string
		if err := tx.Raw("SELECT body_digest FROM idempotency WHERE tenant_id=? AND k=? AND holder=? AND answer=''"+s.d.lock, r.TenantID, r.Key, r.Holder).Scan(&read).Error; err != nil {
			return err
		}
		switch {
		case len(read) == 0:
			return fmt.Errorf("%w: idempotency key %q is not held by this request", sheaf.ErrStale, r.Key)
		case read[0] == body:
			return nil
		case read[0] != "":
			return fmt.Errorf("%w: idempotency key %q was used with another body; use a new key", sheaf.ErrConflict, r.Key)
		}
		return tx.Exec("UPDATE idempotency SET body_digest=? WHERE tenant_id=? AND k=?", body, r.TenantID, r.Key).Error
	})
}

// RenewIdempotent extends the lease; ErrStale when another try has the key.
func (s *idempotency) RenewIdempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) error {
	return s.changeHeld(ctx, r, "lease_until=@now+?", lease.Milliseconds())
}

// FinishIdempotent keeps the answer for every later try; ErrStale when another
// try has the key. The answer is text.
func (s *idempotency) FinishIdempotent(ctx context.Context, r taskstore.KeyedRequest, answer []byte) error {
	if len(answer) == 0 || len(answer) > 8<<20 {
		return fmt.Errorf("%w: an answer to be repeated has 1 byte to 8 MB, this one %d bytes", sheaf.ErrInvalid, len(answer))
	}
	if err := checkText("the answer", string(answer), 8<<20); err != nil {
		return err
	}
	return s.changeHeld(ctx, r, "answer=?", s.vault.seal(string(answer), secretContext("answer", r.TenantID, r.Key)))
}

// LeaveIdempotent ends a try of which nobody knows for certain what it did. The
// next one has the key at once and finishes the work.
func (s *idempotency) LeaveIdempotent(ctx context.Context, r taskstore.KeyedRequest) error {
	return s.changeHeld(ctx, r, "lease_until=0")
}
