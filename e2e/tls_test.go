package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"io"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/taskstore/storetest"
)

// strangersAuthority writes an authority that has signed nothing.
func strangersAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stranger.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A database of a private authority is reached with store.ca_file alone; its
// password comes from a mounted secret. What is wrong is a sentence.
func TestStoreWithAPrivateAuthority(t *testing.T) {
	ca := engine(t, "SHEAF_TEST_CA_FILE")
	for _, driver := range []string{"mysql", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			engine(t, "SHEAF_TEST_"+strings.ToUpper(driver)+"_DSN")
			dsn := storetest.Config(t, driver).DSN
			var plain int // connections to this database that are not encrypted
			db, err := sql.Open(map[string]string{"mysql": "mysql", "postgres": "pgx"}[driver], dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			exec := func(q string) {
				t.Helper()
				if _, err := db.Exec(q); err != nil {
					t.Fatal(err)
				}
			}
			var elsewhere string // the same server by a name that the certificate does not have
			if driver == "mysql" {
				c, err := mysql.ParseDSN(dsn)
				if err != nil {
					t.Fatal(err)
				}
				user := "tls" + sheaf.NewID()[20:]
				exec("CREATE USER " + user + "@'%' IDENTIFIED BY '" + dsnSecret + "' REQUIRE SSL") // who does not encrypt is refused
				defer exec("DROP USER " + user + "@'%'")
				exec("GRANT ALL ON " + c.DBName + ".* TO " + user + "@'%'")
				c.User, c.Passwd = user, dsnSecret
				dsn = c.FormatDSN()
				c.Addr = strings.Replace(c.Addr, "127.0.0.1", "localhost", 1)
				elsewhere = c.FormatDSN()
			} else {
				u, err := url.Parse(dsn)
				if err != nil {
					t.Fatal(err)
				}
				u.User, u.RawQuery = url.UserPassword(u.User.Username(), dsnSecret), ""
				dsn = u.String()
				u.Host = strings.Replace(u.Host, "127.0.0.1", "localhost", 1)
				elsewhere = u.String()
			}
			secret := filepath.Join(t.TempDir(), "dsn")
			if err := os.WriteFile(secret, []byte(dsn+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load("", []string{"SHEAF_STORE_DRIVER=" + driver, "SHEAF_STORE_DSN_FILE=" + secret, "SHEAF_STORE_CA_FILE=" + ca, "SHEAF_STORE_SECRETS_KEY=" + testSecretsKey, "SHEAF_DATA_DIR=" + t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			var log safeBuffer
			s := startLogging(t, cfg, "debug", &log)
			s.send(nil, text("a.md", "# Title\n\nSome words about herons.\n"))
			if driver == "postgres" { // the store's connections and the notifier's
				var all int
				if err := db.QueryRow("SELECT COUNT(*), COUNT(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl JOIN pg_stat_activity a USING (pid) WHERE a.datname=current_database() AND a.pid<>pg_backend_pid()").Scan(&all, &plain); err != nil || all < 2 {
					t.Fatalf("%d connections, %v", all, err)
				}
			}
			if plain > 0 {
				t.Errorf("%d connections are not encrypted", plain)
			}
			s.stop()

			not := filepath.Join(t.TempDir(), "not.pem")
			if err := os.WriteFile(not, []byte("no certificate"), 0o600); err != nil {
				t.Fatal(err)
			}
			contradiction := map[string]string{"mysql": "&tls=skip-verify", "postgres": "?sslmode=disable"}[driver]
			for name, c := range map[string]struct {
				file, dsn string
				final     bool // nothing but another setting helps
				says      string
			}{
				"another authority": {strangersAuthority(t), dsn, false, "name the PEM file of the authority that signed the server's certificate in store.ca_file"},
				"another name":      {ca, elsewhere, false, "in store.dsn name the server as its certificate does"},
				"no file":           {"/nonexistent.pem", dsn, true, "/nonexistent.pem: no such file or directory; correct store.ca_file"},
				"not a certificate": {not, dsn, true, "holds no certificate in PEM form; correct store.ca_file"},
				"contradiction":     {ca, dsn + contradiction, true, "take one of them away"},
			} {
				bad := cfg // of a fleet, which waits for what may come by itself
				bad.DataDir, bad.Store.CAFile, bad.Store.DSN, bad.Log.Format = t.TempDir(), c.file, config.Secret(c.dsn), "json"
				bad.Index.Driver, bad.Index.Addrs = "elasticsearch", []string{"http://127.0.0.1:1"} // the store is opened before it
				var own safeBuffer
				p := begin(t, impatient, bad, io.MultiWriter(&own, &log), "executor")
				said := ""
				if c.final {
					said = p.fails()
				} else {
					waitFor(t, name, func() bool { return len(own.waits(t)) > 0 || p.over() })
					p.giveUp()
					said = strings.Join(own.waits(t), "")
				}
				if !strings.Contains(said, c.says) || c.final != (len(own.waits(t)) == 0) {
					t.Errorf("%s: %s", name, said)
				}
				if text := p.said.text(); strings.Contains(text, dsnSecret) {
					t.Errorf("%s: the password shows: %s", name, text)
				}
			}
			// Commands that open the store without a server reach it by the same settings.
			for name, value := range map[string]string{"STORE_DRIVER": driver, "STORE_DSN_FILE": secret, "STORE_CA_FILE": ca, "STORE_SECRETS_KEY": testSecretsKey, "DATA_DIR": t.TempDir()} {
				t.Setenv("SHEAF_"+name, value)
			}
			for _, line := range []string{"migrate", "migrate --dry-run", "tenant create herons", "key create herons --dry-run"} {
				if o := (typed{ctx: t.Context()}).run(strings.Fields(line)...); o.code != 0 {
					t.Errorf("sheaf %s ends with %d: %s%s", line, o.code, o.out, o.err)
				}
			}
			t.Setenv("SHEAF_STORE_CA_FILE", strangersAuthority(t))
			if o := (typed{ctx: t.Context()}).run("migrate"); o.code == 0 || !strings.Contains(o.out+o.err, "name the PEM file of the authority that signed the server's certificate in store.ca_file") {
				t.Errorf("sheaf migrate under another authority ends with %d: %s%s", o.code, o.out, o.err)
			}

			for _, l := range log.lines(t) {
				for _, v := range l {
					if s, _ := v.(string); strings.Contains(s, dsnSecret) {
						t.Errorf("the log shows the password: %v", l)
					}
				}
			}
		})
	}
}
