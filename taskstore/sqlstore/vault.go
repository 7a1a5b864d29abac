package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/internal/secrets"
)

// vault seals secrets on their way into the database and opens them on the way out.
// Without a ring it leaves everything unchanged: for tests, and for commands that
// touch no secret.
type vault struct{ ring *secrets.Keyring }

// password matches the JSON member of that name, which the settings of datasets,
// documents, tasks and uploads have. Quotes within a string are escaped, so that no
// other text looks like it.
var password = regexp.MustCompile(`"password"\s*:\s*("(?:[^"\\]|\\.)+")`)

// swap changes each password in a JSON text. Most texts have none.
func swap(text string, change func(string) string) string {
	if !strings.Contains(text, `"password"`) {
		return text
	}
	return password.ReplaceAllStringFunc(text, func(member string) string {
		var value string
		if json.Unmarshal([]byte(password.FindStringSubmatch(member)[1]), &value) != nil {
			return member // not JSON, so not ours
		}
		return `"password":` + encode(change(value))
	})
}

// hide seals the passwords in a JSON text of a tenant.
func (v vault) hide(tenantID, text string) string {
	if v.ring == nil {
		return text
	}
	return swap(text, func(plain string) string {
		if _, sealed := secrets.KeyID(plain); sealed {
			return plain
		}
		return v.ring.Seal(plain, secretContext("settings", tenantID, ""))
	})
}

// reveal opens the passwords in a JSON text of a tenant. One that cannot be opened
// becomes "": the document then asks for it.
func (v vault) reveal(tenantID, text string) string {
	return swap(text, func(value string) string { return v.open(value, secretContext("settings", tenantID, "")) })
}

func (v vault) seal(plain, context string) string {
	if v.ring == nil {
		return plain
	}
	return v.ring.Seal(plain, context)
}

// open returns "" for what cannot be opened.
func (v vault) open(text, context string) string {
	if v.ring == nil {
		if _, sealed := secrets.KeyID(text); sealed {
			return ""
		}
		return text
	}
	plain, err := v.ring.Open(text, context)
	if err != nil {
		return ""
	}
	return plain
}

type secretKeyRow struct {
	ID        string `gorm:"primaryKey"`
	CreatedAt int64  `gorm:"autoCreateTime:false"`
	SweptAt   int64
}

func (secretKeyRow) TableName() string { return "secret_keys" }

// SecretKeys lists the ids of the keys that secrets of this store may be sealed
// with; none if the store was never opened with keys.
func (s *sealing) SecretKeys(ctx context.Context) ([]string, error) {
	rows, err := s.secretKeys(ctx)
	return mapped(rows, func(r secretKeyRow) string { return r.ID }), err
}

func (s *sealing) secretKeys(ctx context.Context) ([]secretKeyRow, error) {
	return all[secretKeyRow](s.write(ctx), "SELECT * FROM secret_keys ORDER BY created_at, id")
}

// Unlock lets the store read and write secrets with a ring of keys; call it right
// after Migrate. The error is sheaf.ErrInvalid, and names the key, if the store uses
// a key that the ring lacks: a process with another ring could neither read the
// existing secrets nor write any that others can read.
func (s *sealing) Unlock(ctx context.Context, ring *secrets.Keyring) error {
	missing := func() (string, error) {
		ids, err := s.SecretKeys(ctx)
		for _, id := range ids {
			if !ring.Has(id) {
				return id, err
			}
		}
		return "", err
	}
	id, err := missing()
	if err != nil {
		return err
	}
	if id == "" {
		if err := insertRows(s.write(ctx), "secret_keys", []string{"id", "created_at"}, [][]any{{ring.Current(), raw(s.now())}}, s.d.noop("id")); err != nil {
			return translate(err)
		}
		// Of two concurrent first processes with different keys, at most one stays.
		if id, err = missing(); err == nil && id != "" {
			err = s.write(ctx).Exec("DELETE FROM secret_keys WHERE id=? AND swept_at=0", ring.Current()).Error
		}
		if err != nil {
			return translate(err)
		}
	}
	if id != "" {
		return fmt.Errorf("%w: the store's secrets are sealed with key %s, and this process has %s", sheaf.ErrInvalid, id, strings.Join(ring.IDs(), ", "))
	}
	s.vault = vault{ring}
	return nil
}

// secretColumn is a column that holds secrets.
type secretColumn struct {
	table, column string
	id            string // the column that finds rows, with tenant_id and gen
	gen           string // "gen" if the rows have one, else "0"
	context       string // prefix of the context of values sealed whole; "" for passwords in JSON
}

var secretColumns = []secretColumn{
	{"webhooks", "secret", "id", "0", "webhook"},
	{"idempotency", "answer", "k", "0", "answer"},
	{"datasets", "parse_config", "id", "0", ""},
	{"documents", "parse_config", "id", "0", ""},
	{"generations", "parse_config", "doc_id", "gen", ""},
	{"tasks", "payload", "id", "0", ""},
	{"uploads", "spec", "id", "0", ""},
}

// secretContext binds a sealed value to its row.
func secretContext(kind, tenantID, id string) string { return kind + "/" + tenantID + "/" + id }

// Sealed is the result of SealSecrets.
type Sealed struct {
	Changed    int `json:"changed"`    // rows
	Unreadable int `json:"unreadable"` // rows whose secret was altered or moved: it must be entered again
}

// sealBatch is how many rows are read at a time.
const sealBatch = 200

// SealSecrets seals with the current key whatever is plain or sealed with another
// key of the ring, and then deletes the ids of the other keys. It may run beside
// everything else, and repeatedly. Unless force is set it does nothing if it was
// already done with this key.
func (s *sealing) SealSecrets(ctx context.Context, force bool) (done Sealed, err error) {
	ring := s.vault.ring
	if ring == nil {
		return done, fmt.Errorf("%w: the store was opened without keys", sheaf.ErrInvalid)
	}
	keys, err := s.secretKeys(ctx)
	if err != nil || len(keys) == 1 && keys[0].SweptAt > 0 && !force {
		return done, err
	}
	if s.d.name == "sqlite" { // overwritten secrets must not stay in the file
		if err := s.write(ctx).Exec("PRAGMA secure_delete=ON").Error; err != nil {
			return done, translate(err)
		}
	}
	for _, c := range secretColumns {
		if err := s.sealColumn(ctx, c, &done); err != nil {
			return done, fmt.Errorf("sealing %s.%s: %w", c.table, c.column, translate(err))
		}
	}
	if s.d.name == "sqlite" {
		for _, q := range []string{"PRAGMA secure_delete=OFF", "PRAGMA wal_checkpoint(TRUNCATE)"} {
			if err := s.write(ctx).Exec(q).Error; err != nil {
				return done, translate(err)
			}
		}
	}
	return done, s.tx(ctx, func(tx *gorm.DB) error {
		if err := tx.Exec(s.sql("UPDATE secret_keys SET swept_at=@now WHERE id=?"), ring.Current()).Error; err != nil {
			return err
		}
		return tx.Exec("DELETE FROM secret_keys WHERE id<>?", ring.Current()).Error
	})
}

func (s *sealing) sealColumn(ctx context.Context, c secretColumn, done *Sealed) error {
	fresh, has := "sealed:v1:"+s.vault.ring.Current()+":%", ""
	if c.context == "" {
		fresh, has = `%"password":"`+fresh, " AND "+c.column+` LIKE '%"password"%'`
	}
	for after, strictly := "", false; ; {
		from := ">="
		if strictly {
			from = ">"
		}
		var rows []struct {
			TenantID, ID, Body string
			Gen                int
		}
		err := scan(s.write(ctx).Raw("SELECT tenant_id, "+c.id+" AS id, "+c.gen+" AS gen, "+c.column+" AS body FROM "+c.table+
			" WHERE "+c.id+from+"? AND "+c.column+"<>'' AND "+c.column+" NOT LIKE ?"+has+" ORDER BY "+c.id+" LIMIT ?", after, fresh, sealBatch), &rows)
		if err != nil || len(rows) == 0 {
			return err
		}
		before := done.Changed
		for _, r := range rows {
			sealed, err := s.vault.again(c, r.TenantID, r.ID, r.Body)
			if err != nil {
				done.Unreadable++
				continue
			}
			if sealed == r.Body {
				continue
			}
			where, args := " WHERE "+c.id+"=? AND tenant_id=? AND "+c.column+"=?", []any{sealed, r.ID, r.TenantID, r.Body}
			if c.gen != "0" {
				where, args = where+" AND "+c.gen+"=?", append(args, r.Gen)
			}
			res := s.write(ctx).Exec("UPDATE "+c.table+" SET "+c.column+"=?"+where, args...)
			if res.Error != nil {
				return res.Error
			}
			done.Changed += int(res.RowsAffected)
		}
		// Sealed rows are not found again; those of the last id beyond the limit are.
		after, strictly = rows[len(rows)-1].ID, done.Changed == before
	}
}

// ForgetSecretKeys lets the store be opened with other keys. What was sealed with
// lost keys stays unreadable.
func (s *sealing) ForgetSecretKeys(ctx context.Context) error {
	return translate(s.write(ctx).Exec("DELETE FROM secret_keys").Error)
}
