package pgdsn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"sheaf"
)

func TestAuthoritiesLeaveNoPlainConnection(t *testing.T) {
	roots := x509.NewCertPool()
	for _, mode := range []string{"", "?sslmode=allow", "?sslmode=prefer", "?sslmode=require", "?sslmode=verify-full"} {
		c, err := Parse("postgres://u:p@one:1,two:2/db"+mode, roots)
		if err != nil {
			t.Fatal(err)
		}
		if c.Host != "one" || len(c.Fallbacks) != 1 || c.Fallbacks[0].Host != "two" || c.Fallbacks[0].Port != 2 {
			t.Errorf("%q: hosts %s and %+v", mode, c.Host, c.Fallbacks)
		}
		for host, x := range map[string]*tls.Config{"one": c.TLSConfig, "two": c.Fallbacks[0].TLSConfig} {
			if x == nil || x.ServerName != host || x.RootCAs != roots || x.InsecureSkipVerify {
				t.Errorf("%q: %s is reached with %+v", mode, host, x)
			}
		}
	}
}

func TestWhatCannotBeReadShowsNoPassword(t *testing.T) {
	for dsn, says := range map[string]string{
		"postgres://u:hunter2@h/db?sslmode=disable":  "sslmode=disable",
		"postgres://u:hunter2@h:port/db":             "postgres DSN",
		"host=h password=hunter2 sslmode=sometimes ": "sslmode",
	} {
		_, err := Parse(dsn, x509.NewCertPool())
		if !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
	if c, err := Parse("postgres://u:p@h/db?sslmode=disable", nil); err != nil || c.TLSConfig != nil {
		t.Errorf("without authorities the address decides: %v", err)
	}
}
