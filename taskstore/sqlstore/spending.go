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

// keepSpending is how long what was spent is remembered. A run that waits for
// longer than that begins anew.
const keepSpending = 90 * 24 * time.Hour

var errFull = errors.New("a cap is reached")

// Spend adds tokens to what a tenant has spent under each of the names, or to none
// of them where that would bring one above its cap: then full is its name. What
// is given back is negative, and no cap stands in its way.
func (s *runs) Spend(ctx context.Context, tenantID string, on []taskstore.Spending, tokens int64) (full string, err error) {
	on = slices.Clone(on)
	slices.SortFunc(on, func(a, b taskstore.Spending) int { return strings.Compare(a.Name, b.Name) }) // so that two that spend at once meet in one order
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
			if tokens > 0 && o.Cap > 0 { // compared to the column, so that numbers of 64 bits are taken
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

// RaiseCap sets the cap that Spending.Raised names, in tokens. It is remembered as
// long as what was spent.
func (s *runs) RaiseCap(ctx context.Context, tenantID, name string, tokens int64) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		return insertRows(tx, "model_spending", []string{"tenant_id", "name", "tokens", "spent_at"}, [][]any{{tenantID, name, tokens, raw(s.now())}}, s.d.upsert("tenant_id, name", "tokens", "spent_at"))
	})
}

// Spent is what a tenant has spent under a name.
func (s *runs) Spent(ctx context.Context, tenantID, name string) (int64, error) {
	n, err := first[int64](s.read(ctx), "SELECT tokens FROM model_spending WHERE tenant_id=? AND name=?", tenantID, name)
	return value(n), err
}
