// Package proxy is a TCP proxy that breaks connections on purpose. The chaos
// harness puts one in front of each engine of a fleet, between the processes under
// test and their dependencies.
package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Mode is what a proxy does to the bytes it relays.
type Mode int

const (
	// Pass forwards everything.
	Pass Mode = iota
	// Delay forwards everything, each piece delayed by the proxy's delay.
	Delay
	// Cut resets all open and new connections.
	Cut
	// DropReplies forwards requests and swallows the engine's replies: the client
	// does not learn that the request was applied.
	DropReplies
)

// Proxy listens on its own address and forwards connections to a target.
type Proxy struct {
	ln     net.Listener
	target string

	mu      sync.Mutex
	mode    Mode
	delay   time.Duration
	conns   map[*pair]struct{}
	swallow int64 // bytes of swallowed replies
	cut     int64 // reset connections
	closed  bool
	wg      sync.WaitGroup
}

// pair is a client's connection and its upstream connection.
type pair struct {
	client, server net.Conn
	lost           bool // a reply was swallowed: later replies would be out of step
}

// Start listens on a free port of the loopback interface in front of target.
func Start(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{ln: ln, target: target, conns: map[*pair]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the address for clients, as host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set changes the mode from now on. Cut resets open connections. Leaving
// DropReplies resets the connections that lost a reply: their streams have a gap.
func (p *Proxy) Set(mode Mode, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.delay = mode, delay
	for c := range p.conns {
		if mode == Cut || mode != DropReplies && c.lost {
			p.reset(c)
		}
	}
}

// Counts reports how many bytes of replies were swallowed and how many
// connections were reset.
func (p *Proxy) Counts() (swallowed, resets int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallow, p.cut
}

// Close stops listening, resets open connections and waits until all have ended.
func (p *Proxy) Close() error {
	err := p.ln.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		p.reset(c)
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

// reset ends a pair with RST, as a crash or a firewall would; the caller holds mu.
func (p *Proxy) reset(c *pair) {
	delete(p.conns, c)
	p.cut++
	for _, conn := range []net.Conn{c.client, c.server} {
		if t, ok := conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	cut := p.mode == Cut || p.closed
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var server net.Conn
	var err error
	if !cut {
		server, err = (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	}
	if cut || err != nil {
		if t, ok := client.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = client.Close()
		return
	}
	c := &pair{client: client, server: server}
	p.mu.Lock()
	if p.closed || p.mode == Cut {
		p.reset(c)
		p.mu.Unlock()
		return
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()

	p.wg.Go(func() { p.pipe(c, server, client, false) })
	p.pipe(c, client, server, true)
}

// pipe copies one direction until either side ends, then ends the pair.
func (p *Proxy) pipe(c *pair, dst io.Writer, src io.Reader, reply bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.mu.Lock()
			mode, delay := p.mode, p.delay
			drop := reply && (mode == DropReplies || c.lost)
			if drop {
				c.lost = true
				p.swallow += int64(n)
			}
			p.mu.Unlock()
			if mode == Delay {
				time.Sleep(delay)
			}
			if !drop {
				if _, werr := dst.Write(buf[:n]); werr != nil {
					err = werr
				}
			}
		}
		if err != nil {
			p.mu.Lock()
			if _, open := p.conns[c]; open {
				delete(p.conns, c)
				_ = c.client.Close()
				_ = c.server.Close()
			}
			p.mu.Unlock()
			return
		}
	}
}
