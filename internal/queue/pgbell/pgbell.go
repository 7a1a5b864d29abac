// Package pgbell carries the bell of the SQL queue between processes that share
// a PostgreSQL, by LISTEN and NOTIFY. A ring may be lost while a connection is
// down; one is made up when it is back, and a queue polls besides.
package pgbell

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sheaf"
	"sheaf/internal/pgdsn"
)

// Config adjusts a bell; the zero value is ready to use.
type Config struct {
	Channel string        // of LISTEN; "" means sheaf_queue
	MinWait time.Duration // before the first attempt to connect again, doubling from then on; 0 means 250 ms
	MaxWait time.Duration // between attempts at most; 0 means 15 s
	Alive   time.Duration // a connection on which nothing came for so long is tried; 0 means 30 s
	Log     *slog.Logger  // nil means slog.Default
	Deaf    bool          // it only rings: nothing listens, and Rings receives nothing

	// RootCAs are the authorities that the server's certificate is checked
	// against; the connection is then encrypted. nil leaves both to the DSN.
	RootCAs *x509.CertPool
}

// Bell implements sqlqueue.Bell. It keeps two connections of its own: one that
// listens, unless it is deaf, and one that rings, once it has rung.
type Bell struct {
	cfg    Config
	conn   *pgx.ConnConfig
	self   string // payload of its own rings, which it does not hear
	rings  chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}

	ringing chan struct{} // holds a token while nobody rings
	ringer  *pgx.Conn     // nil before the first ring and after an error
	pending sync.Mutex    // of queued
	queued  bool          // a ring waits for its turn that has not been sent
}

// Open starts listening on the PostgreSQL that dsn names, unless the bell is
// deaf. The first connection is made in the background: a server that is not
// there yet is waited for. The error is ErrInvalid when dsn cannot be read.
func Open(dsn string, cfg Config) (*Bell, error) {
	if cfg.Channel == "" {
		cfg.Channel = "sheaf_queue"
	}
	if cfg.MinWait <= 0 {
		cfg.MinWait = 250 * time.Millisecond
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 15 * time.Second
	}
	if cfg.Alive <= 0 {
		cfg.Alive = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	conn, err := pgdsn.Parse(dsn, cfg.RootCAs)
	if err != nil {
		return nil, fmt.Errorf("the PostgreSQL address cannot be read; correct it in the configuration: %w", err)
	}
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = 5 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Bell{
		cfg:     cfg,
		conn:    conn,
		self:    sheaf.NewID(),
		rings:   make(chan struct{}, 1),
		cancel:  cancel,
		ended:   make(chan struct{}),
		ringing: make(chan struct{}, 1),
	}
	b.ringing <- struct{}{}
	go b.run(ctx)
	return b, nil
}

// Rings receives when another process rang, and when the connection was made
// anew. Rings that nobody has received yet are one. It is closed by Close.
func (b *Bell) Rings() <-chan struct{} { return b.rings }

func (b *Bell) ring() {
	select {
	case b.rings <- struct{}{}:
	default:
	}
}

// run listens and connects again until ctx ends.
func (b *Bell) run(ctx context.Context) {
	defer close(b.ended)
	defer close(b.rings)
	if b.cfg.Deaf {
		<-ctx.Done()
		return
	}
	wait := b.cfg.MinWait
	for ctx.Err() == nil {
		listened, err := b.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if listened {
			wait = b.cfg.MinWait
		}
		b.cfg.Log.Warn("the bell between processes is down; queues poll meanwhile", "retry_in", wait, "error", err)
		select {
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		case <-ctx.Done():
		}
		wait = min(2*wait, b.cfg.MaxWait)
	}
}

// listen hears rings on one connection until it fails. listened says that it
// got as far as to hear.
func (b *Bell) listen(ctx context.Context) (listened bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, b.conn.Copy())
	if err != nil {
		return false, err
	}
	defer func() { closeConn(conn) }()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{b.cfg.Channel}.Sanitize()); err != nil {
		return false, err
	}
	b.ring() // for what was rung while nobody listened
	for {
		alive, cancel := context.WithTimeout(ctx, b.cfg.Alive)
		n, err := conn.WaitForNotification(alive)
		cancel()
		switch {
		case err == nil:
			if n.Payload != b.self {
				b.ring()
			}
		case ctx.Err() != nil:
			return true, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed():
			// Silence, or a connection that died without a word: ask.
			ask, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = conn.Ping(ask)
			cancel()
			if err != nil {
				return true, err
			}
		default:
			return true, err
		}
	}
}

// Ring wakes the other processes. Callers that come while a ring is under way
// share the next one. The error is ErrUnavailable; a ring is then lost, and the
// others find the work when they poll.
func (b *Bell) Ring(ctx context.Context) error {
	b.pending.Lock()
	if b.queued {
		b.pending.Unlock()
		return nil
	}
	b.queued = true
	b.pending.Unlock()

	select {
	case <-b.ringing:
		defer func() { b.ringing <- struct{}{} }()
	case <-ctx.Done():
		b.unqueue()
		return ctx.Err()
	}
	b.unqueue() // from here on a ring may come too late for this one
	select {
	case <-b.ended:
		return fmt.Errorf("ring: %w: the bell is closed", sheaf.ErrUnavailable)
	default:
	}

	// A connection may have died since the last ring, so one that is not new
	// gets a second try on a new one: a ring twice is one ring.
	var err error
	for fresh := false; !fresh; {
		if b.ringer == nil {
			fresh = true
			if b.ringer, err = pgx.ConnectConfig(ctx, b.conn.Copy()); err != nil {
				b.ringer = nil
				break
			}
		}
		if _, err = b.ringer.Exec(ctx, "SELECT pg_notify($1, $2)", b.cfg.Channel, b.self); err == nil {
			return nil
		}
		closeConn(b.ringer)
		b.ringer = nil
		if ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("ring: %w: PostgreSQL takes no notification; start it, or correct its address (%w)", sheaf.ErrUnavailable, err)
}

func (b *Bell) unqueue() {
	b.pending.Lock()
	b.queued = false
	b.pending.Unlock()
}

// Close stops listening and closes Rings. It may be called twice.
func (b *Bell) Close() error {
	b.cancel()
	<-b.ended
	<-b.ringing
	defer func() { b.ringing <- struct{}{} }()
	if b.ringer != nil {
		closeConn(b.ringer)
		b.ringer = nil
	}
	return nil
}

// closeConn says good-bye, for a second at most.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
