package proxy

import (
	"bufio"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// counter answers each line with the number of lines it has applied.
func counter(t *testing.T) (addr string, applied *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	applied = new(atomic.Int64)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for sc := bufio.NewScanner(c); sc.Scan(); {
					_, _ = fmt.Fprintln(c, applied.Add(1))
				}
			}()
		}
	}()
	return ln.Addr().String(), applied
}

func ask(t *testing.T, c net.Conn, wait time.Duration) (string, error) {
	t.Helper()
	if _, err := fmt.Fprintln(c, "more"); err != nil {
		return "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	line, err := bufio.NewReader(c).ReadString('\n')
	return line, err
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestModes(t *testing.T) {
	addr, applied := counter(t)
	p, err := Start(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	c := dial(t, p)
	if got, err := ask(t, c, 5*time.Second); err != nil || got != "1\n" {
		t.Fatalf("pass: %q, %v", got, err)
	}

	p.Set(Delay, 100*time.Millisecond)
	begun := time.Now()
	if got, err := ask(t, c, 5*time.Second); err != nil || got != "2\n" {
		t.Fatalf("delay: %q, %v", got, err)
	}
	if took := time.Since(begun); took < 200*time.Millisecond { // once each way
		t.Errorf("a round trip took %s in spite of the delay", took)
	}

	p.Set(DropReplies, 0)
	if got, err := ask(t, c, 300*time.Millisecond); err == nil {
		t.Fatalf("a reply came through: %q", got)
	}
	if n := applied.Load(); n != 3 {
		t.Fatalf("the engine applied %d requests, want 3: the request must be handed on", n)
	}
	p.Set(Pass, 0)
	if _, err := ask(t, c, 5*time.Second); err == nil {
		t.Error("a connection that lost a reply goes on: its next reply would be taken for the lost one's")
	}
	if swallowed, _ := p.Counts(); swallowed == 0 {
		t.Error("no swallowed reply was counted")
	}

	c = dial(t, p)
	if _, err := ask(t, c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.Set(Cut, 0)
	if _, err := ask(t, c, 5*time.Second); err == nil {
		t.Error("a cut connection answers")
	}
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		if _, err := ask(t, c, 5*time.Second); err == nil {
			t.Error("a new connection answers while everything is cut")
		}
		_ = c.Close()
	}
	p.Set(Pass, 0)
	if _, err := ask(t, dial(t, p), 5*time.Second); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}
