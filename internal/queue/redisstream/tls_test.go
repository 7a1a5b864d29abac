package redisstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"sheaf"
)

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns the
// paths and a pool that trusts it.
func selfSigned(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, text := range map[string][]byte{certFile: certPEM, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pool
}

func TestTLSAndUsers(t *testing.T) {
	certFile, keyFile, pool := selfSigned(t)
	port := freePort(t)
	s := startServer(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no")
	s.do("ACL", "SETUSER", "sheaf", "on", ">pass", "~sheaf:*", "+@all")
	s.do("ACL", "SETUSER", "other", "on", ">pass", "~other:*", "+@all")

	o := RedisOptions{Addrs: []string{"127.0.0.1:" + strconv.Itoa(port)}, Username: "sheaf", Password: "pass", TLS: &tls.Config{RootCAs: pool}}
	q := newQueue(t, Config{Redis: o, Prefix: "sheaf:"})
	hint := []sheaf.Hint{{TaskID: "x", TenantID: "a"}}
	if _, err := q.Publish(t.Context(), "a", sheaf.LaneNormal, hint); err != nil {
		t.Error(err)
	}
	if hints, err := q.Take(t.Context(), "w", 1, nil); err != nil || len(hints) != 1 {
		t.Errorf("took %v, %v", hints, err)
	}

	untrusted := o
	untrusted.TLS = &tls.Config{}
	wantKind(t, newQueue(t, Config{Redis: untrusted}).Ping(t.Context()), sheaf.ErrUnavailable, "certificate authority")

	narrow := o
	narrow.Username = "other"
	_, err := newQueue(t, Config{Redis: narrow, Prefix: "sheaf:"}).Publish(t.Context(), "a", sheaf.LaneNormal, hint)
	wantKind(t, err, sheaf.ErrUnavailable, "widen its ACL")

	plain := o
	plain.TLS = nil
	wantKind(t, newQueue(t, Config{Redis: plain}).Ping(t.Context()), sheaf.ErrUnavailable, "may expect TLS")

	needless := o
	needless.Addrs = []string{s.addr}
	wantKind(t, newQueue(t, Config{Redis: needless}).Ping(t.Context()), sheaf.ErrUnavailable, "whether it speaks TLS")
}
