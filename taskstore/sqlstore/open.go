package sqlstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"modernc.org/sqlite"

	"sheaf"
	"sheaf/internal/pgdsn"
	"sheaf/taskstore"
)

// Connections returns the number of open and used connections of each pool of the
// store, by name: "read", "write" and, on MySQL, "scripts".
func (s *handle) Connections() map[string]taskstore.PoolUse {
	out := map[string]taskstore.PoolUse{}
	add := func(name string, db interface{ Stats() sql.DBStats }) {
		st := db.Stats()
		out[name] = taskstore.PoolUse{Max: st.MaxOpenConnections, Open: st.OpenConnections, Used: st.InUse, Waits: st.WaitCount, Waited: st.WaitDuration}
	}
	if db, err := s.w.DB(); err == nil {
		add("write", db)
	}
	if db, err := s.r.DB(); err == nil && s.r != s.w {
		add("read", db)
	}
	if s.scripts != nil {
		add("scripts", s.scripts)
	}
	return out
}

// Config selects and configures the database.
type Config struct {
	Driver string // "sqlite", "mysql" or "postgres"
	// DSN is a file path for sqlite, user:password@tcp(host:port)/name for
	// mysql, and a URL or key=value list for postgres.
	DSN string
	// RootCAs verify the certificate of a mysql or postgres server; the connection is
	// then encrypted. nil leaves both to the DSN.
	RootCAs *x509.CertPool
	// MaxOpenConns is the maximum number of connections; 0 means 16. On SQLite, which
	// has one writer, it limits the readers; 0 means 4. MySQL gets two more, for claims
	// and ends.
	MaxOpenConns int
	// EventLag is how old an event must be before readers see it, so that an event with
	// a lower sequence number cannot appear after it. 0 means none on SQLite, which
	// commits in order, and 2 s elsewhere; negative means none.
	EventLag time.Duration
	// Grace is how long the collector leaves alone what a lost or ended attempt wrote,
	// since a slow writer may still be writing: longer than any lease. 0 means 2 min.
	Grace time.Duration
	// KeepVersions is how long the artifacts of a version are kept after another
	// version replaced it, for reading and comparison; its chunks leave the index after
	// Grace. Values up to Grace have no effect.
	KeepVersions time.Duration
	// KeepHistory is how long lists keep jobs and versions whose documents are all
	// gone, after their tasks could be removed. 0 means forever.
	KeepHistory time.Duration
	// SampleAge is the maximum age of the samples that estimates use: the speed of the
	// latest tasks, and the backlog of other tenants. 0 means 2 s; negative means that
	// every estimate reads them again.
	SampleAge time.Duration
}

// Open connects to the database. Migrate brings its schema up to date.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &handle{eventLag: max(c.EventLag, 0), grace: cmp.Or(c.Grace, 2*time.Minute), keepVersions: c.KeepVersions, keepHistory: c.KeepHistory, sampleAge: cmp.Or(c.SampleAge, 2*time.Second)}
	s.fleet.age = s.sampleAge
	if c.EventLag == 0 && c.Driver != "sqlite" {
		s.eventLag = 2 * time.Second
	}
	var err error
	switch c.Driver {
	case "sqlite":
		err = s.openSQLite(ctx, c)
	case "mysql":
		err = s.openMySQL(ctx, c)
	case "postgres":
		err = s.openPostgres(c)
	default:
		return nil, fmt.Errorf("%w: database driver %q: choose sqlite, mysql or postgres", sheaf.ErrInvalid, c.Driver)
	}
	if err == nil {
		err = s.Ping(ctx)
	}
	if isDamage(err) {
		err = damaged(err.Error())
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open %s database: %w", c.Driver, translate(err))
	}
	return newStore(s), nil
}

// SQLite takes one writer at a time. A pool of one connection queues writers in Go,
// where waiting is cheap and fair, and separates them from readers, which can run
// concurrently in WAL mode.
func (s *handle) openSQLite(ctx context.Context, c Config) error {
	if c.DSN == "" {
		return fmt.Errorf("%w: the sqlite database needs a file path", sheaf.ErrInvalid)
	}
	if err := os.MkdirAll(filepath.Dir(c.DSN), 0o700); err != nil {
		return err
	}
	open := func(conns, cacheKiB int, extra string) (*gorm.DB, error) {
		// Immediate: a transaction that reads and then writes must hold the write lock
		// from the start. Measured: deferred, 350 of 400 such transactions of 8 writers
		// failed with SQLITE_BUSY despite the timeout; immediate, none.
		dsn := "file:" + (&url.URL{Path: c.DSN}).EscapedPath() + "?_txlock=immediate" +
			"&_pragma=busy_timeout(" + strconv.FormatInt(sqlitePatience.Milliseconds(), 10) + ")&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)" +
			"&_pragma=temp_store(MEMORY)&_pragma=cache_size(-" + strconv.Itoa(cacheKiB) + ")" + extra
		connector, err := sqlite.NewConnector(dsn)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(stmtCache{connector})
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		if err := firstConnection(ctx, db); err != nil {
			_ = db.Close()
			return nil, err
		}
		return s.gorm(gormsqlite.New(gormsqlite.Config{DriverName: "sqlite", Conn: db}), db)
	}
	s.d = sqliteDialect
	var err error
	if s.w, err = open(1, writerCacheKiB, ""); err != nil {
		return err
	}
	readers := c.MaxOpenConns
	if readers <= 0 {
		readers = 4
	}
	if s.r, err = open(readers, readerCacheKiB, "&_pragma=query_only(1)"); err != nil {
		return err
	}
	return s.check(ctx)
}

// Page cache sizes of SQLite's connections. Each connection has its own, outside
// Go's heap, and never gives it back. Measured: 16 readers at random in a file of
// 120 MB take 1 GB with 32 MiB each, and an eighth of that in the same CPU time with
// 4 MiB, since the remaining pages are in the system's cache.
const (
	writerCacheKiB = 32 << 10
	readerCacheKiB = 4 << 10
)

// sqlitePatience is how long to wait for SQLite's lock while another process holds
// it.
const sqlitePatience = 5 * time.Second

// firstConnection waits for another process that is turning the same new file into a
// WAL database. SQLite's own timeout does not apply: that step upgrades a lock, for
// which SQLite never waits.
func firstConnection(ctx context.Context, db *sql.DB) error {
	for begun := time.Now(); ; {
		err := db.PingContext(ctx)
		if err == nil || !lockTrouble(err) || time.Since(begun) > sqlitePatience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// driverLog sends what the MySQL driver logs about broken connections to the
// product's log, at debug, since the errors of calls say the same.
type driverLog struct{}

func (driverLog) Print(v ...any) {
	slog.Debug(strings.TrimSpace(fmt.Sprint(v...)), "from", "go-sql-driver/mysql")
}

func (s *handle) openMySQL(ctx context.Context, c Config) error {
	cfg, err := mysqldriver.ParseDSN(c.DSN)
	if err != nil {
		return fmt.Errorf("%w: mysql DSN: %v", sheaf.ErrInvalid, err)
	}
	// Guards count the rows that matched, not those that changed: a heartbeat
	// that writes an unchanged lease must not look like a lost one.
	cfg.ClientFoundRows = true
	cfg.Logger = driverLog{}
	cfg.ParseTime = true
	cfg.InterpolateParams = true // one round trip a statement instead of three
	cfg.Loc = time.UTC
	// String literals take the columns' collation: with the server's own,
	// state='pending' does not fix the state, and an ordered index read becomes a sort.
	// Measured: the next 50 of 10,000 tenants with a backlog took 500 ms, and now take
	// 2.
	if err := cfg.Apply(mysqldriver.Charset("utf8mb4", "utf8mb4_bin")); err != nil {
		return err
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if c.RootCAs != nil {
		if t := cfg.TLSConfig; t != "" && t != "true" {
			return fmt.Errorf("%w: mysql DSN: it says tls=%s, but an authority is set for the server's certificate; take one of them away", sheaf.ErrInvalid, t)
		}
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs} // the driver adds the host's name
	}
	// UTC in the session: NOW() in a zone with daylight saving time repeats an hour.
	cfg.Params["time_zone"] = "'+00:00'"
	level, err := mysqlIsolationVariable(ctx, cfg.Clone())
	if err != nil {
		return err
	}
	// Measured: at REPEATABLE READ eight claimers met deadlock storms in 3 of 14 runs.
	cfg.Params[level] = "'READ-COMMITTED'"
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return err
	}
	// Only scripts of constant statements are sent several at once: anywhere else a
	// second statement in a text would be an injection.
	many := cfg.Clone()
	many.MultiStatements = true
	scripts, err := mysqldriver.NewConnector(many)
	if err != nil {
		return err
	}
	s.scripts = pool(sql.OpenDB(scripts), Config{MaxOpenConns: writeConcurrency})
	db := pool(sql.OpenDB(connector), c)
	s.d = mysqlDialect
	s.w, err = s.gorm(gormmysql.New(gormmysql.Config{Conn: db}), db)
	s.r = s.w
	return err
}

// mysqlIsolationVariable returns the server's name of its isolation level: MariaDB
// kept the one that MySQL 8 dropped.
func mysqlIsolationVariable(ctx context.Context, cfg *mysqldriver.Config) (string, error) {
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	var name, value string
	err = db.QueryRowContext(ctx, "SHOW VARIABLES LIKE 'transaction_isolation'").Scan(&name, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return "tx_isolation", nil
	}
	return "transaction_isolation", err
}

func (s *handle) openPostgres(c Config) error {
	conn, err := pgdsn.Parse(c.DSN, c.RootCAs)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*conn)
	pool(db, c)
	s.d = postgresDialect
	s.w, err = s.gorm(gormpostgres.New(gormpostgres.Config{Conn: db}), db)
	s.r = s.w
	return err
}

func pool(db *sql.DB, c Config) *sql.DB {
	n := c.MaxOpenConns
	if n <= 0 {
		n = 16
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// gorm wraps db. The only transactions are those that the code opens. gorm's own
// cache of prepared statements stays off: what it prepares in one transaction it
// prepares again in the next. pgx has its own cache, MySQL gets the parameters in
// the text, and SQLite's connections keep their statements.
func (s *handle) gorm(d gorm.Dialector, db *sql.DB) (*gorm.DB, error) {
	g, err := gorm.Open(d, &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		Logger:                 logger.New(log.New(io.Discard, "", 0), logger.Config{LogLevel: logger.Silent}),
	})
	if err == nil && s.d.name == "sqlite" {
		err = s.notices(g)
	}
	if err != nil {
		_ = db.Close()
	}
	return g, err
}

// Ping checks that the database answers and, on SQLite, that its file is readable
// and has not been found damaged.
func (s *handle) Ping(ctx context.Context) error {
	if why := s.damage.Load(); why != nil {
		return damaged(*why)
	}
	db, err := s.w.DB()
	if err == nil && s.d.name == "sqlite" {
		// On a reader, since the writer may be busy. It reads the schema and so its
		// page.
		err = s.r.WithContext(ctx).Exec("SELECT COUNT(*) FROM sqlite_master").Error
	} else if err == nil {
		err = db.PingContext(ctx)
	}
	return translate(err)
}

// checkTime limits the check of a SQLite file at startup.
const checkTime = 5 * time.Second

// check reads as much of the SQLite file as checkTime allows: no one must work on a
// damaged file.
func (s *handle) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var findings []string
	err := scan(s.r.WithContext(ctx).Raw("PRAGMA quick_check(1)"), &findings)
	switch {
	case isDamage(err):
		return damaged(err.Error())
	case err != nil && ctx.Err() != nil:
		return nil // a large file; damage in the rest shows when it is read
	case err != nil:
		return err
	case len(findings) > 0 && findings[0] != "ok":
		return damaged(findings[0])
	}
	return nil
}

// damaged is the error of a damaged SQLite file, with what to do about it.
func damaged(why string) error {
	return fmt.Errorf("%w: %w", sheaf.ErrUnavailable, sheaf.Fail(sheaf.CategoryInternal, "store_damaged",
		"The database file sheaf.db is damaged (%s). Stop Sheaf, keep a copy of the file, and restore the backup; without one, `sqlite3 sheaf.db .recover` saves what can be read.", clip(strings.ToValidUTF8(why, ""), 200)))
}

// isDamage reports whether err is SQLite's for a damaged file.
func isDamage(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == 11 || e.Code()&0xff == 26) // CORRUPT, NOTADB
}

// notices records when a statement meets damage: the statements that still work
// would make it worse.
func (s *handle) notices(g *gorm.DB) error {
	look := func(tx *gorm.DB) {
		if tx.Error != nil && isDamage(tx.Error) {
			why := tx.Error.Error()
			s.damage.CompareAndSwap(nil, &why)
		}
	}
	c := g.Callback()
	return errors.Join(c.Raw().After("gorm:raw").Register("sheaf:damage", look), c.Create().After("gorm:create").Register("sheaf:damage", look), c.Query().After("gorm:query").Register("sheaf:damage", look), c.Row().After("gorm:row").Register("sheaf:damage", look))
}

// Close closes the connections. It may be called more than once.
func (s *handle) Close() error {
	var errs []error
	if s.scripts != nil {
		errs = append(errs, s.scripts.Close())
	}
	for _, g := range []*gorm.DB{s.w, s.r} {
		if g == nil {
			continue
		}
		if db, err := g.DB(); err == nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}
