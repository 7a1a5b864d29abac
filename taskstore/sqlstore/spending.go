package sqlstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf/taskstore"
)

// keepSpending is how long spending is kept. A run that waits longer starts again
// from zero.
const keepSpending = 90 * 24 * time.Hour

var errFull = errors.New("a cap is reached")

// Spend adds tokens to a tenant's spending under each of the names, or to none if
// that would exceed a cap: then full is the name of the one that is full. Refunds
// are negative, and no cap applies to them.
func (s *runs) Spend(ctx context.Context, tenantID string, on []taskstore.Spending, tokens int64) (full string, err error) {
	on = slices.Clone(on)
	slices.SortFunc(on, func(a, b taskstore.Spending) int { return strings.Compare(a.Name, b.Name) }) // so that concurrent calls lock in one order
	err = s.tx(ctx, func(tx *gorm.DB) error {
		full = ""
		for _, o := range on {
			if o.Raised != "" && o.Cap > 0 && tokens > 0 {
				raised, err := first[int64](tx, "SELECT tokens FROM model_spending WHERE tenant_id=? AND name=?", tenantID, o.Raised)
				if err != nil {
					return err
				}
				o.Cap = max(o.Cap, value(raised))
			}
			if err := insertRows(tx, "model_spending", []string{"tenant_id", "name", "tokens", "spent_at"}, [][]any{{tenantID, o.Name, 0, raw(s.now())}}, s.d.noop("tenant_id")); err != nil {
				return err
			}
			within, args := "", []any{tokens, tenantID, o.Name}
			if tokens > 0 && o.Cap > 0 { // compared with the column, so that 64-bit numbers are accepted
				within, args = " AND tokens+?<=?", append(args, tokens, o.Cap)
			}
			n, err := exec(tx, s.sql("UPDATE model_spending SET tokens=tokens+?, spent_at=@now WHERE tenant_id=? AND name=?"+within), args...)
			if err != nil {
				return err
			}
			if n == 0 && tokens != 0 {
				full = o.Name
				return errFull
			}
		}
		if rand.IntN(500) == 0 {
			_, err := exec(tx, s.sql("DELETE FROM model_spending WHERE spent_at<@now-?"), keepSpending.Milliseconds())
			return err
		}
		return nil
	})
	if full != "" {
		return full, nil
	}
	return "", err
}

// RaiseCap sets the cap that Spending.Raised names, in tokens. It is kept as long as
// spending.
func (s *runs) RaiseCap(ctx context.Context, tenantID, name string, tokens int64) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		return insertRows(tx, "model_spending", []string{"tenant_id", "name", "tokens", "spent_at"}, [][]any{{tenantID, name, tokens, raw(s.now())}}, s.d.upsert("tenant_id, name", "tokens", "spent_at"))
	})
}

// Spent returns a tenant's spending under a name.
func (s *runs) Spent(ctx context.Context, tenantID, name string) (int64, error) {
	n, err := first[int64](s.read(ctx), "SELECT tokens FROM model_spending WHERE tenant_id=? AND name=?", tenantID, name)
	return value(n), err
}
