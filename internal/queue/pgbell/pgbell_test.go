package pgbell

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

var _ sqlqueue.Bell = (*Bell)(nil)

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

func open(t *testing.T, dsn, channel string) *Bell {
	t.Helper()
	b, err := Open(dsn, Config{Channel: channel, MinWait: 10 * time.Millisecond, MaxWait: 50 * time.Millisecond, Alive: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func hear(t *testing.T, b *Bell, what string) {
	t.Helper()
	select {
	case _, open := <-b.Rings():
		if !open {
			t.Fatalf("the bell was closed before %s", what)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
}

func silent(t *testing.T, b *Bell, what string) {
	t.Helper()
	select {
	case <-b.Rings():
		t.Errorf("a ring came: %s", what)
	case <-time.After(300 * time.Millisecond): // longer than Alive: silence outlasts the pings
	}
}

func ring(t *testing.T, b *Bell) {
	t.Helper()
	if err := b.Ring(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRingReachesOtherProcesses(t *testing.T) {
	channel := `odd "name" ` + sheaf.NewID()[:8]
	a, b, other := open(t, dsn(t), channel), open(t, dsn(t), channel), open(t, dsn(t), sheaf.NewID())
	for _, bell := range []*Bell{a, b, other} {
		hear(t, bell, "the ring of a new connection")
	}
	for range 3 {
		ring(t, a)
		hear(t, b, "a ring of the other")
	}
	silent(t, a, "its own")
	silent(t, other, "of another channel")
}

func TestQueuesOfTwoProcessesWakeEachOther(t *testing.T) {
	channel := sheaf.NewID()
	store := new(queuetest.Store)
	var queues []*sqlqueue.Queue
	for range 2 {
		bell := open(t, dsn(t), channel)
		q := sqlqueue.New(store, sqlqueue.Config{Bell: bell})
		t.Cleanup(func() { _ = q.Close() })
		if err := q.Wait(t.Context(), 10*time.Second); err != nil { // the ring of a new connection
			t.Fatal(err)
		}
		if _, err := q.Take(t.Context(), "w", 1, nil); err != nil {
			t.Fatal(err)
		}
		queues = append(queues, q)
	}
	store.Add("a", sheaf.LaneNormal, 1)
	start := time.Now()
	if err := queues[0].Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	for taken := 0; taken == 0; { // a wait may also hear what is left of an older ring
		if err := queues[1].Wait(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > 5*time.Second {
			t.Fatalf("the ring took %v, as if there were none", waited)
		}
		hints, err := queues[1].Take(t.Context(), "w", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		taken = len(hints)
	}
}

// deafAndHearing opens a bell that listens already and a deaf one beside it.
func deafAndHearing(t *testing.T) (hears, deaf *Bell) {
	t.Helper()
	channel := sheaf.NewID()
	hears = open(t, dsn(t), channel)
	hear(t, hears, "the ring of a new connection")
	deaf, err := Open(dsn(t), Config{Channel: channel, Deaf: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	return hears, deaf
}

// A deaf bell rings for others, and holds no connection before it does.
func TestDeafBellOnlyRings(t *testing.T) {
	hears, deaf := deafAndHearing(t)
	if err := deaf.Ring(t.Context()); err != nil {
		t.Fatal(err)
	}
	hear(t, hears, "a ring of the deaf one")
	ring(t, hears)
	silent(t, deaf, "to a deaf bell")
	for range 2 {
		if err := deaf.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, open := <-deaf.Rings(); open {
		t.Error("a closed bell rings")
	}
	if err := deaf.Ring(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("ring of a closed bell: %v", err)
	}
}

// Two processes over one PostgreSQL, the keeper in one of them.
func TestStirsReachTheKeepersProcess(t *testing.T) {
	hears, deaf := deafAndHearing(t)
	keeper := sqlqueue.New(new(queuetest.Store), sqlqueue.Config{Stirs: hears})
	executor := sqlqueue.New(new(queuetest.Store), sqlqueue.Config{Stirs: deaf})
	t.Cleanup(func() { _, _ = keeper.Close(), executor.Close() })
	heard := keeper.Stirs(t.Context())
	for range 3 {
		if err := executor.Stir(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatal("the stir of another process was not heard within 10 s")
		}
	}
}

func TestKilledConnectionsAreMadeAnew(t *testing.T) {
	channel := sheaf.NewID()
	named := dsn(t) + "&application_name=" + channel // so that the test kills no others
	a, b := open(t, named, channel), open(t, named, channel)
	hear(t, a, "the ring of a new connection")
	hear(t, b, "the ring of a new connection")
	ring(t, a)
	hear(t, b, "a ring")

	admin, err := pgx.Connect(t.Context(), dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	killed, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", channel)
	if err != nil || killed.RowsAffected() != 3 {
		t.Fatalf("killed %d connections, %v; want two that listen and one that rings", killed.RowsAffected(), err)
	}
	hear(t, b, "the ring of the connection made anew")
	hear(t, a, "the ring of the connection made anew")
	ring(t, a)
	hear(t, b, "a ring after both were killed")
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
	hear(t, b, "the ring of a new connection")
	ring(t, b)
	p.cut()
	if err := b.Ring(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) || !strings.Contains(err.Error(), "start it") {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Ring(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a closed bell answers %v", err)
	}
	for range b.Rings() { // ends, since Close closes it
	}
}

func TestAddressThatCannotBeRead(t *testing.T) {
	_, err := Open("postgres://u:hidden@h:port/x", Config{})
	if !errors.Is(err, sheaf.ErrInvalid) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v", err)
	}
}
