package sqlstore

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"

	"sheaf"
	"sheaf/migrations"
)

// Migrate brings the schema up to date. Concurrent callers wait for each other. A
// schema of the next release is left unchanged. One of a later release fails with
// sheaf.ErrInvalid, because this code does not know what to write into it.
func (s *handle) Migrate(ctx context.Context) error {
	db, err := s.w.DB()
	if err != nil {
		return translate(err)
	}
	files, err := fs.Sub(migrations.FS, s.d.name)
	if err != nil {
		return err
	}
	unlock, err := s.d.lockMigrations(ctx, db)
	if err != nil {
		return fmt.Errorf("lock the schema: %w", translate(err))
	}
	defer unlock()
	up := func() error {
		p, err := goose.NewProvider(s.d.goose, db, files, goose.WithDisableGlobalRegistry(true))
		if err != nil {
			return err
		}
		there, known, err := p.GetVersions(ctx)
		if err != nil {
			return err
		}
		if there > known {
			return s.runsOn(ctx, there, known)
		}
		if _, err = p.Up(ctx); err != nil {
			return err
		}
		return s.noteFormer(ctx)
	}
	err = up()
	// SQLite has no lock to take first: of two concurrent processes one fails, and then
	// fewer migrations are pending than before, so try again.
	for left := math.MaxInt; err != nil && s.d.name == "sqlite"; {
		pending, perr := s.PendingMigrations(ctx)
		if perr != nil || len(pending) >= left {
			break
		}
		left = len(pending)
		err = up()
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", translate(err))
	}
	if s.d.name == "sqlite" {
		if err := s.fixStatistics(ctx); err != nil {
			return fmt.Errorf("migrate: %w", translate(err))
		}
	}
	return nil
}

// Migrations lists the migrations of a driver, oldest first: "0001_init".
func Migrations(driver string) ([]string, error) {
	files, err := fs.Glob(migrations.FS, driver+"/*.sql")
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".sql")
	}
	slices.Sort(files)
	return files, err
}

// PendingMigrations lists the migrations that Migrate would run. It changes nothing,
// even in a database that was never migrated.
func (s *handle) PendingMigrations(ctx context.Context) ([]string, error) {
	all, err := Migrations(s.d.name)
	if err != nil {
		return nil, err
	}
	tables := map[string]string{
		"sqlite": "SELECT COUNT(*) FROM sqlite_master WHERE name=?", "mysql": "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name=?",
		"postgres": "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=ANY(current_schemas(false)) AND table_name=?",
	}[s.d.name]
	var began, there int
	if err := scan(s.read(ctx).Raw(tables, goose.DefaultTablename), &began); err != nil {
		return nil, translate(err)
	}
	if began > 0 {
		if err := scan(s.read(ctx).Raw("SELECT COALESCE(MAX(version_id),0) FROM "+goose.DefaultTablename), &there); err != nil {
			return nil, translate(err)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool {
		number, _, _ := strings.Cut(name, "_")
		n, err := strconv.Atoi(number)
		return err != nil || n <= there
	}), nil
}

// formerKey is the key in queue_meta of the newest migration of the release before
// the one that made the schema.
const formerKey = "former_schema"

// noteFormer records what runsOn needs to decide for other releases.
func (s *handle) noteFormer(ctx context.Context) error {
	const want = migrations.Former
	if noted, err := s.Meta(ctx, formerKey); err != nil || noted == strconv.Itoa(want) {
		return err
	}
	return s.SetMeta(ctx, formerKey, strconv.Itoa(want))
}

// runsOn reports whether code that knows the migrations up to known may run on
// a schema that has more.
func (s *handle) runsOn(ctx context.Context, there, known int64) error {
	noted, err := s.Meta(ctx, formerKey)
	if err != nil {
		return err
	}
	if former, err := strconv.ParseInt(noted, 10, 64); err == nil && former <= known {
		return nil
	}
	return fmt.Errorf("%w: the store has schema %d, and this program, which knows %d, is more than one release older. Run the version that the store was last used with, or a newer one; to go back, restore the backup that was made before the upgrade", sheaf.ErrInvalid, there, known)
}
