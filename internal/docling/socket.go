package docling

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"

	"sheaf/internal/facade"
)

// Limits of connections that follow tasks.
const (
	maxSockets     = 1000        // per process
	maxFrameBytes  = 4 << 10     // sent by a client
	socketWrite    = time.Minute // for the client to accept a message, and to answer the close
	socketStep     = 5 * time.Second
	socketInterval = time.Second // between two polls if the first was answered early
)

// message is a message of the protocol over the socket.
type message struct {
	Message string  `json:"message"` // connection, update or error
	Task    *status `json:"task"`
	Error   *string `json:"error"`
}

// hijacked lets the protocol hijack the connection through the wrapped writers that
// limit answers.
type hijacked struct{ http.ResponseWriter }

func (w hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// follow sends a task's status whenever it changes, until it ends. Messages from
// the client are ignored; browsers, which cannot send headers, pass the key as
// ?api_key=.
func (s *service) follow(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		refuse(w, &facade.Error{Status: http.StatusUpgradeRequired, Code: "no_websocket", Detail: "Here tasks are followed over WebSocket; ask /v1/status/poll/{task} instead"})
		return
	}
	if r.URL.Query().Has("api_key") && facade.Key(r.Header) == "" {
		r.Header.Set("X-Api-Key", r.URL.Query().Get("api_key"))
	}
	select {
	case s.sockets <- struct{}{}:
		defer func() { <-s.sockets }()
	default:
		refuse(w, &facade.Error{Status: http.StatusServiceUnavailable, Code: "too_many_sockets", Detail: "Too many tasks are followed here; poll the status instead"})
		return
	}
	t, c, err := s.of(r)
	var st *status
	if err == nil {
		st, err = t.status(r.Context(), c, 0)
	}
	if err != nil && facade.AsError(err).Status != http.StatusNotFound {
		refuse(w, err)
		return
	}
	websocket.Server{Handler: func(conn *websocket.Conn) {
		_ = conn.SetDeadline(time.Time{}) // clears the deadlines of requests
		conn.MaxPayloadBytes = maxFrameBytes
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			defer cancel()
			for said := ""; websocket.Message.Receive(conn, &said) == nil; { // which also answers pings
			}
		}()
		if err != nil {
			err = send(conn, failed(err))
		} else {
			err = updates(ctx, conn, t, c, st)
		}
		if err == nil && conn.WriteClose(closeNormal) == nil {
			_ = conn.SetReadDeadline(time.Now().Add(socketWrite))
			<-ctx.Done() // wait for the client's answer: unread messages must not be lost
		}
	}}.ServeHTTP(hijacked{w}, r)
}

// closeNormal is a status code of RFC 6455, 7.4.1.
const closeNormal = 1000

func failed(err error) message {
	return message{Message: "error", Error: &facade.AsError(err).Detail}
}

func send(conn *websocket.Conn, m message) error {
	_ = conn.SetWriteDeadline(time.Now().Add(socketWrite))
	return websocket.JSON.Send(conn, m)
}

// updates sends the first status and each change. An error means that the
// connection is gone.
func updates(ctx context.Context, conn *websocket.Conn, t *task, c *facade.Client, st *status) error {
	last, _ := json.Marshal(st)
	if err := send(conn, message{Message: "connection", Task: st}); err != nil {
		return err
	}
	for !st.ended() {
		begun := time.Now()
		next, err := t.status(ctx, c, socketStep)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return send(conn, failed(err))
		}
		if now, _ := json.Marshal(next); string(now) != string(last) {
			if err := send(conn, message{Message: "update", Task: next}); err != nil {
				return err
			}
			last = now
		}
		if st = next; !st.ended() {
			select {
			case <-time.After(socketInterval - time.Since(begun)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
