package command

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// A server without TLS is told from one that does not answer.
func TestStoreWithoutTLSIsToldSo(t *testing.T) {
	for err, says := range map[error]string{
		mysql.ErrNoTLS: "turn TLS on at the server",
		errors.New("tls error: server refused TLS connection"): "turn TLS on at the server",
		x509.UnknownAuthorityError{}:                           "store.ca_file",
		errors.New("connection refused"):                       "that the server runs",
	} {
		if got := storeAdvice(err); !strings.Contains(got, says) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
