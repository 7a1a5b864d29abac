package command

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"sheaf/internal/config"
	"sheaf/taskstore/sqlstore"
)

func TestDurationsInLogsHaveAUnit(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := newLogger(config.Log{Level: "info", Format: format}, &out)
		log.Info("waits", "rest", 8*time.Second, slog.Group("of", "all", 90*time.Millisecond))
		want := map[string][]string{"text": {"rest=8s", "of.all=90ms"}, "json": {`"rest":"8s"`, `"all":"90ms"`}}[format]
		for _, part := range want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: %s has no %s", format, out.String(), part)
			}
		}
	}
}

// What a database driver says of its own accord is a line of the log like any
// other, in its format and behind its level.
func TestDriversWriteIntoTheLog(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // a server that speaks no MySQL
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("\x05\x00\x00\x01hello"))
			_ = c.Close()
		}
	}()
	var out bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(newLogger(config.Log{Level: "debug", Format: "json"}, &out))
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Driver: "mysql", DSN: "u@tcp(" + ln.Addr().String() + ")/d"})
	if err == nil {
		_ = s.Close()
		t.Fatal("a server that speaks no MySQL is taken for one")
	}
	said := false
	for line := range strings.Lines(out.String()) {
		var l struct{ Msg, From string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Errorf("not JSON: %s", line)
		}
		said = said || l.From == "go-sql-driver/mysql"
	}
	if !said {
		t.Errorf("the driver's line is not in the log: %s", out.String())
	}
}
