package pgnotify

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sheaf"
	"sheaf/internal/queue/queuetest"
	"sheaf/internal/queue/sqlqueue"
)

func dsn(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("SHEAF_TEST_POSTGRES_DSN")
	if dsn == "" && os.Getenv("SHEAF_TEST_REQUIRE") != "" {
		t.Fatal("SHEAF_TEST_POSTGRES_DSN is not set and SHEAF_TEST_REQUIRE is")
	} else if dsn == "" {
		t.Skip("SHEAF_TEST_POSTGRES_DSN is not set")
	}
	return dsn
}

func open(t *testing.T, dsn, channel string) *Channel {
	t.Helper()
	c, err := Open(dsn, Config{Listen: []string{channel}, MinWait: 10 * time.Millisecond, MaxWait: 50 * time.Millisecond, PingIdle: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Channel(channel)
}

func receive(t *testing.T, b *Channel, what string) {
	t.Helper()
	select {
	case _, open := <-b.Notifications():
		if !open {
			t.Fatalf("the client was closed before %s", what)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
}

func silent(t *testing.T, b *Channel, what string) {
	t.Helper()
	select {
	case <-b.Notifications():
		t.Errorf("a notification came: %s", what)
	case <-time.After(300 * time.Millisecond): // longer than PingIdle: silence outlasts the pings
	}
}

func send(t *testing.T, b *Channel) {
	t.Helper()
	if err := b.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNotificationReachesOtherProcesses(t *testing.T) {
	channel := `odd "name" ` + sheaf.NewID()[:8]
	a, b, other := open(t, dsn(t), channel), open(t, dsn(t), channel), open(t, dsn(t), sheaf.NewID())
	for _, ch := range []*Channel{a, b, other} {
		receive(t, ch, "the notification of a new connection")
	}
	for range 3 {
		send(t, a)
		receive(t, b, "a notification of the other")
	}
	silent(t, a, "its own")
	silent(t, other, "of another channel")
}

func TestQueuesOfTwoProcessesWakeEachOther(t *testing.T) {
	channel := sheaf.NewID()
	store := new(queuetest.Store)
	var queues []*sqlqueue.Queue
	for range 2 {
		q := sqlqueue.New(store, sqlqueue.Config{Executors: open(t, dsn(t), channel)})
		t.Cleanup(func() { _ = q.Close() })
		if err := q.Wait(t.Context(), 10*time.Second); err != nil { // the notification of a new connection
			t.Fatal(err)
		}
		if _, err := q.Take(t.Context(), "w", 1, nil); err != nil {
			t.Fatal(err)
		}
		queues = append(queues, q)
	}
	store.Add("a", sheaf.LaneNormal, 1)
	start := time.Now()
	if err := queues[0].Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
	for taken := 0; taken == 0; { // a wait may also hear what is left of an older notification
		if err := queues[1].Wait(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > 5*time.Second {
			t.Fatalf("the notification took %v, as if there were none", waited)
		}
		hints, err := queues[1].Take(t.Context(), "w", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		taken = len(hints)
	}
}

// openPair opens a client that listens already and one beside it that only sends.
func openPair(t *testing.T) (listens, sends *Channel) {
	t.Helper()
	channel := sheaf.NewID()
	listens = open(t, dsn(t), channel)
	receive(t, listens, "the notification of a new connection")
	c, err := Open(dsn(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return listens, c.Channel(channel)
}

// A client that listens to nothing notifies others.
func TestClientThatOnlySends(t *testing.T) {
	listens, sends := openPair(t)
	send(t, sends)
	receive(t, listens, "a notification of the one that only sends")
	send(t, listens)
	silent(t, sends, "to one that only sends")
	for range 2 {
		if err := sends.client.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := sends.Notify(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a closed client answers %v", err)
	}
}

// Two channels share the connections of a client and are not mixed up.
func TestChannelsAreApart(t *testing.T) {
	one, two := sheaf.NewID(), sheaf.NewID()
	c, err := Open(dsn(t), Config{Listen: []string{one, two}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, name := range []string{one, two} {
		receive(t, c.Channel(name), "the notification of a new connection")
	}
	other, err := Open(dsn(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	send(t, other.Channel(two))
	receive(t, c.Channel(two), "a notification of the second channel")
	silent(t, c.Channel(one), "of the second channel")
	send(t, other.Channel(one))
	receive(t, c.Channel(one), "a notification of the first channel")
}

// Two processes over one PostgreSQL, the keeper in one of them.
func TestChangesReachTheKeepersProcess(t *testing.T) {
	listens, sends := openPair(t)
	keeper := sqlqueue.New(new(queuetest.Store), sqlqueue.Config{Keeper: listens})
	executor := sqlqueue.New(new(queuetest.Store), sqlqueue.Config{Keeper: sends})
	t.Cleanup(func() { _, _ = keeper.Close(), executor.Close() })
	received := keeper.Changes(t.Context())
	for range 3 {
		if err := executor.NotifyChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-received:
		case <-time.After(10 * time.Second):
			t.Fatal("the notification of another process was not received within 10 s")
		}
	}
}

func TestKilledConnectionsAreMadeAnew(t *testing.T) {
	channel := sheaf.NewID()
	named := dsn(t) + "&application_name=" + channel // so that the test kills no others
	a, b := open(t, named, channel), open(t, named, channel)
	receive(t, a, "the notification of a new connection")
	receive(t, b, "the notification of a new connection")
	send(t, a)
	receive(t, b, "a notification")

	admin, err := pgx.Connect(t.Context(), dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	killed, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", channel)
	if err != nil || killed.RowsAffected() != 3 {
		t.Fatalf("killed %d connections, %v; want two that listen and one that sends", killed.RowsAffected(), err)
	}
	receive(t, b, "the notification of the connection made anew")
	receive(t, a, "the notification of the connection made anew")
	send(t, a)
	receive(t, b, "a notification after both were killed")
}

// proxy passes bytes to a server until it is cut.
type proxy struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func startProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			go func() { _, _ = io.Copy(in, out) }()
			go func() { _, _ = io.Copy(out, in) }()
		}
	}()
	t.Cleanup(p.cut)
	return p
}

func (p *proxy) cut() {
	_ = p.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func TestServerThatIsGone(t *testing.T) {
	conf, err := pgx.ParseConfig(dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	server := net.JoinHostPort(conf.Host, strconv.Itoa(int(conf.Port)))
	p := startProxy(t, server)
	through := strings.Replace(dsn(t), server, p.Addr().String(), 1)
	b := open(t, through, sheaf.NewID())
	receive(t, b, "the notification of a new connection")
	send(t, b)
	p.cut()
	if err := b.Notify(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) || !strings.Contains(err.Error(), "start it") {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if err := b.client.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := b.Notify(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a closed client answers %v", err)
	}
	for range b.Notifications() { // ends, since Close closes it
	}
}

func TestAddressThatCannotBeRead(t *testing.T) {
	_, err := Open("postgres://u:hidden@h:port/x", Config{})
	if !errors.Is(err, sheaf.ErrInvalid) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v", err)
	}
}
