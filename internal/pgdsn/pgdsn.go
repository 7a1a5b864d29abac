// Package pgdsn reads the address of a PostgreSQL. The store and the notifier of the
// SQL queue, which keep connections of their own, read it alike.
package pgdsn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sheaf"
)

// Parse reads a URL or key=value list. With roots the connection is encrypted
// and the server's certificate checked against them, name and all, as with
// sslmode=verify-full; nil leaves that to the address. The error is ErrInvalid
// and shows no password.
func Parse(dsn string, roots *x509.CertPool) (*pgx.ConnConfig, error) {
	conn, err := pgx.ParseConfig(dsn) // which hides the password in what it says
	if err != nil {
		return nil, fmt.Errorf("%w: postgres DSN: %v", sheaf.ErrInvalid, err)
	}
	if roots == nil {
		return conn, nil
	}
	said := conn.TLSConfig // which holds what sslcert and sslkey name
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
	// What is left are the other hosts, each once: with sslmode=prefer a host is
	// among them with and without encryption.
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
