package web

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"sheaf/internal/settings"
)

func get(t *testing.T, path string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	New().ServeHTTP(w, r)
	return w.Result()
}

func TestEveryAddressAnswersThePageAndEveryFileItself(t *testing.T) {
	for _, path := range []string{"/", "/datasets/default", "/datasets/v1.2", "/datasets/a/documents/0123?page=3", "/jobs/1", "/operations"} {
		resp := get(t, path, nil)
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || !strings.Contains(string(b), `id="view"`) {
			t.Errorf("%s answers %d: %.60s", path, resp.StatusCode, b)
		}
	}
	for path, want := range map[string]string{"/js/main.js": "text/javascript", "/style.css": "text/css", "/icon.svg": "image/svg+xml"} {
		if resp := get(t, path, nil); resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), want) {
			t.Errorf("%s answers %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
	if resp := get(t, "/js/none.js", nil); resp.StatusCode != 404 {
		t.Errorf("a missing script answers %d", resp.StatusCode)
	}
}

func TestFilesAreCompressedAndNotSentTwice(t *testing.T) {
	resp := get(t, "/js/main.js", http.Header{"Accept-Encoding": {"gzip"}})
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	want, _ := files.ReadFile("static/js/main.js")
	if err != nil || string(got) != string(want) {
		t.Fatalf("unpacked to %d bytes, want %d: %v", len(got), len(want), err)
	}
	etag := resp.Header.Get("ETag")
	if resp := get(t, "/js/main.js", http.Header{"Accept-Encoding": {"gzip"}, "If-None-Match": {etag}}); resp.StatusCode != http.StatusNotModified {
		t.Errorf("a known file answers %d", resp.StatusCode)
	}
	if resp := get(t, "/js/main.js", http.Header{"If-None-Match": {etag}}); resp.StatusCode != 200 {
		t.Errorf("the plain file has the same tag as the packed one")
	}
}

// The policy would block most of these; the files must not even try.
func TestNothingIsLoadedFromElsewhereOrInline(t *testing.T) {
	foreign := regexp.MustCompile(`(?i)(src|href|url|import|from)\s*[=(]?\s*["'(]?\s*(https?:)?//[a-z]`)
	inline := regexp.MustCompile(`(?i)<script(?:>|[^>]*[^>]>[^<])|\son[a-z]+="|\sstyle="|javascript:|\.innerHTML\s*=[^=]|insertAdjacentHTML|document\.write|\beval\(|new Function\(`)
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if m := foreign.Find(b); m != nil {
			t.Errorf("%s loads %q", name, m)
		}
		if m := inline.Find(b); m != nil {
			t.Errorf("%s holds %q", name, m)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	resp := get(t, "/", nil)
	csp := resp.Header.Get("Content-Security-Policy")
	if strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("policy: %s", csp)
	}
}

// A script that is found only when another has been read costs the first view
// a round trip: the page names all that its first view needs.
func TestScriptsOfTheFirstViewAreNamedByThePage(t *testing.T) {
	imports := regexp.MustCompile(`(?m)^import [^"]*"([^"]+)"`)
	page, err := files.ReadFile("static/index.html")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var walk func(name string)
	walk = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if !strings.Contains(string(page), `"/`+name+`"`) {
			t.Errorf("index.html does not name /%s", name)
		}
		b, err := files.ReadFile("static/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range imports.FindAllStringSubmatch(string(b), -1) {
			walk(path.Join(path.Dir(name), m[1]))
		}
	}
	walk("js/main.js")
	walk("js/views/documents.js")
	if n := strings.Count(string(page), "modulepreload"); n != len(seen)-1 || n < 5 {
		t.Errorf("%d scripts are named, %d are needed", n+1, len(seen))
	}
}

func TestEveryChunkMethodCanBeChosen(t *testing.T) {
	script, err := files.ReadFile("static/js/actions.js")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^const methods = \[(.*)\];$`).FindSubmatch(script)
	if list == nil {
		t.Fatal("the list of chunk methods is not where it was")
	}
	if want := `"` + strings.Join(settings.MethodNames(), `", "`) + `"`; string(list[1]) != want {
		t.Errorf("the page offers %s; the methods are %s", list[1], want)
	}
}
