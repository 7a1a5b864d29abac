// Package pgnotify carries notifications between processes that share a PostgreSQL,
// by LISTEN and NOTIFY. One may be lost while a connection is down; receivers get
// one when it is back, and also poll.
package pgnotify

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
	"sheaf/internal/notify"
	"sheaf/internal/pgdsn"
)

var _ notify.Remote = (*Channel)(nil)

// Config configures a client; the zero value of each field is ready to use.
type Config struct {
	Listen   []string      // channels to receive notifications on; none: the client only sends
	MinWait  time.Duration // before the first attempt to reconnect, then doubling; 0 means 250 ms
	MaxWait  time.Duration // maximum between attempts; 0 means 15 s
	PingIdle time.Duration // a connection idle for this long is pinged; 0 means 30 s
	Log      *slog.Logger  // nil means slog.Default

	// RootCAs are the authorities for checking the server's certificate; the connection
	// is then encrypted. nil leaves both to the DSN.
	RootCAs *x509.CertPool
}

// Client has two connections of its own: one that listens, if it has channels to
// listen on, and one that sends, opened with the first notification.
type Client struct {
	cfg      Config
	conn     *pgx.ConnConfig
	self     string              // payload of its own notifications, which it does not receive
	received map[string]*Channel // channels it listens on, by name
	cancel   context.CancelFunc
	ended    chan struct{}

	sending chan struct{} // holds a token while no one is sending
	sender  *pgx.Conn     // nil before the first notification and after an error
}

// Channel is one channel of a client. It implements notify.Remote.
type Channel struct {
	client *Client
	name   string
	signal notify.Signal

	mu     sync.Mutex
	queued bool // a notification is waiting to be sent
}

// Open starts listening on the PostgreSQL at dsn. It connects in the background and
// waits for a server that is not up yet. The error is ErrInvalid when dsn cannot be
// parsed.
func Open(dsn string, cfg Config) (*Client, error) {
	if cfg.MinWait <= 0 {
		cfg.MinWait = 250 * time.Millisecond
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 15 * time.Second
	}
	if cfg.PingIdle <= 0 {
		cfg.PingIdle = 30 * time.Second
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
	c := &Client{
		cfg:      cfg,
		conn:     conn,
		self:     sheaf.NewID(),
		received: map[string]*Channel{},
		cancel:   cancel,
		ended:    make(chan struct{}),
		sending:  make(chan struct{}, 1),
	}
	for _, name := range cfg.Listen {
		c.received[name] = &Channel{client: c, name: name, signal: notify.NewSignal()}
	}
	c.sending <- struct{}{}
	go c.run(ctx)
	return c, nil
}

// Channel returns the named channel. A channel the client does not listen on can
// only send.
func (c *Client) Channel(name string) *Channel {
	if ch := c.received[name]; ch != nil {
		return ch
	}
	return &Channel{client: c, name: name}
}

// Notifications implements notify.Remote: it receives when another process notified
// and after each reconnect, and is closed by the client's Close. It is nil for a
// send-only channel.
func (ch *Channel) Notifications() <-chan struct{} { return ch.signal }

// run listens and reconnects until ctx is done.
func (c *Client) run(ctx context.Context) {
	defer close(c.ended)
	defer func() {
		for _, ch := range c.received {
			close(ch.signal)
		}
	}()
	wait := c.cfg.MinWait
	for ctx.Err() == nil && len(c.received) > 0 {
		listened, err := c.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if listened {
			wait = c.cfg.MinWait
		}
		c.cfg.Log.Warn("notifications between processes are unavailable; queues poll meanwhile", "retry_in", wait, "error", err)
		select {
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		case <-ctx.Done():
		}
		wait = min(2*wait, c.cfg.MaxWait)
	}
	<-ctx.Done()
}

// listen receives on one connection until it fails. listened reports whether it got
// as far as receiving.
func (c *Client) listen(ctx context.Context) (listened bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, c.conn.Copy())
	if err != nil {
		return false, err
	}
	defer func() { closeConn(conn) }()
	for name := range c.received {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{name}.Sanitize()); err != nil {
			return false, err
		}
	}
	for _, ch := range c.received {
		ch.signal.Notify() // for notifications sent while not listening
	}
	for {
		idle, cancel := context.WithTimeout(ctx, c.cfg.PingIdle)
		n, err := conn.WaitForNotification(idle)
		cancel()
		switch {
		case err == nil:
			if ch := c.received[n.Channel]; ch != nil && n.Payload != c.self {
				ch.signal.Notify()
			}
		case ctx.Err() != nil:
			return true, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed():
			ping, cancel := context.WithTimeout(ctx, 5*time.Second) // idle, or half-open
			err = conn.Ping(ping)
			cancel()
			if err != nil {
				return true, err
			}
		default:
			return true, err
		}
	}
}

// Notify implements notify.Remote. Calls made while another is being sent share the
// next one. The error is ErrUnavailable; the notification is then lost, and
// receivers find the work by polling.
func (ch *Channel) Notify(ctx context.Context) error {
	ch.mu.Lock()
	shared := ch.queued
	ch.queued = true
	ch.mu.Unlock()
	if shared {
		return nil
	}
	c := ch.client
	select {
	case <-c.sending:
		defer func() { c.sending <- struct{}{} }()
	case <-ctx.Done():
		ch.unqueue()
		return ctx.Err()
	}
	ch.unqueue() // from here on a call may be too late to share this one
	select {
	case <-c.ended:
		return fmt.Errorf("notify: %w: the client is closed", sheaf.ErrUnavailable)
	default:
	}

	// A connection may have died since the last notification, so one that is not fresh
	// gets a second try on a new one: duplicates are harmless.
	var err error
	for fresh := false; !fresh; {
		if c.sender == nil {
			fresh = true
			if c.sender, err = pgx.ConnectConfig(ctx, c.conn.Copy()); err != nil {
				c.sender = nil
				break
			}
		}
		if _, err = c.sender.Exec(ctx, "SELECT pg_notify($1, $2)", ch.name, c.self); err == nil {
			return nil
		}
		closeConn(c.sender)
		c.sender = nil
		if ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("notify: %w: PostgreSQL takes no notification; start it, or correct its address (%w)", sheaf.ErrUnavailable, err)
}

func (ch *Channel) unqueue() {
	ch.mu.Lock()
	ch.queued = false
	ch.mu.Unlock()
}

// Close stops listening and closes the Notifications of all channels. It may be
// called twice.
func (c *Client) Close() error {
	c.cancel()
	<-c.ended
	<-c.sending
	defer func() { c.sending <- struct{}{} }()
	if c.sender != nil {
		closeConn(c.sender)
		c.sender = nil
	}
	return nil
}

// closeConn closes the connection gracefully, within a second.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
