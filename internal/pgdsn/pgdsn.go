// Package pgdsn parses PostgreSQL addresses. The store and the notifier of the SQL
// queue, which have separate connections, parse them the same way.
package pgdsn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sheaf"
)

// Parse reads a URL or key=value list. With roots the connection is encrypted and
// the server's certificate and name are verified against them, as with
// sslmode=verify-full; nil leaves that to the address. The error is ErrInvalid and
// shows no password.
func Parse(dsn string, roots *x509.CertPool) (*pgx.ConnConfig, error) {
	conn, err := pgx.ParseConfig(dsn) // its errors hide the password
	if err != nil {
		return nil, fmt.Errorf("%w: postgres DSN: %v", sheaf.ErrInvalid, err)
	}
	if roots == nil {
		return conn, nil
	}
	said := conn.TLSConfig // contains what sslcert and sslkey name
	for _, f := range conn.Fallbacks {
		if said == nil {
			said = f.TLSConfig
		}
	}
	if said == nil {
		return nil, fmt.Errorf("%w: postgres DSN: it says sslmode=disable, but an authority is set for the server's certificate; take one of them away", sheaf.ErrInvalid)
	}
	trust := func(host string) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host, Certificates: said.Certificates}
	}
	conn.TLSConfig = trust(conn.Host)
	// The remaining ones are the other hosts, each once: with sslmode=prefer a host
	// is listed with and without encryption.
	type place struct {
		host string
		port uint16
	}
	seen := map[place]bool{{conn.Host, conn.Port}: true}
	others := conn.Fallbacks[:0]
	for _, f := range conn.Fallbacks {
		if p := (place{f.Host, f.Port}); !seen[p] {
			seen[p] = true
			f.TLSConfig = trust(f.Host)
			others = append(others, f)
		}
	}
	conn.Fallbacks = others
	return conn, nil
}
