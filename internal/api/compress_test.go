package api

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// answer asks without the client's own compression.
func (k *keyedServer) answer(method, path string, header ...string) (*http.Response, []byte) {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return resp, b
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	k := newKeyedServer(t)
	for i := range 30 {
		k.send("POST", "/v1/datasets", fmt.Sprintf(`{"name":"dataset %d"}`, i), 201, nil)
	}
	_, plain := k.answer("GET", "/v1/datasets")
	for _, c := range []struct {
		method, path, accept string
		zipped               bool
	}{
		{"GET", "/v1/datasets", "gzip", true},
		{"GET", "/v1/datasets", "br, GZIP;q=0.5", true},
		{"GET", "/v1/datasets", "gzip;q=0", false},
		{"GET", "/v1/datasets", "gzip; q=0.0", false},
		{"GET", "/v1/datasets", "br", false},
		{"GET", "/v1/datasets/files", "gzip", false}, // small
		{"GET", "/v1/nothing", "gzip", false},
	} {
		resp, b := k.answer(c.method, c.path, "Accept-Encoding", c.accept)
		if zipped := resp.Header.Get("Content-Encoding") == "gzip"; zipped != c.zipped {
			t.Errorf("%s %s with %q: compressed %v", c.method, c.path, c.accept, zipped)
			continue
		}
		if c.accept != "br" && c.accept[len(c.accept)-1] != '0' && !slices.Contains(resp.Header.Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s %s does not tell caches that it varies", c.method, c.path)
		}
		if !c.zipped {
			continue
		}
		if len(b) > len(plain)/3 {
			t.Errorf("%d bytes of %d", len(b), len(plain))
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("compressed it says %s, %v", got, err)
		}
	}
	// What is not JSON is left as it is, and a stream comes as it is written.
	req, err := http.NewRequestWithContext(t.Context(), "GET", k.url+"/v1/datasets/files", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	begin := make([]byte, 40)
	if _, err := io.ReadFull(resp.Body, begin); err != nil || resp.Header.Get("Content-Encoding") != "" || !strings.Contains(string(begin), "event: status") {
		t.Errorf("the stream begins %q, %v", begin, err)
	}
}

func TestFieldsOfItemsAreChosen(t *testing.T) {
	k := newKeyedServer(t)
	_, b := k.answer("GET", "/v1/datasets?fields=name,chunks")
	if got := strings.TrimSpace(string(b)); got != `{"items":[{"name":"files","chunks":0}],"next_cursor":null}` {
		t.Errorf("name and chunks: %s", got)
	}
	for path, want := range map[string]string{
		"/v1/datasets?fields=nam":                             `the items have no property \"nam\"; did you mean name?`,
		"/v1/datasets?fields=":                                "fields is empty",
		"/v1/datasets/files/documents?fields=id,parser_confg": "did you mean parser?",
		"/v1/datasets/files?fields=id":                        "fields",
	} {
		if resp, b := k.answer("GET", path); resp.StatusCode != 400 || !strings.Contains(string(b), want) {
			t.Errorf("%s answers %d %s", path, resp.StatusCode, b)
		}
	}
	for _, path := range []string{"/v1/datasets/files/documents", "/v1/jobs", "/v1/dead-letters", "/v1/receipts"} {
		if resp, b := k.answer("GET", path+"?fields=id"); resp.StatusCode != 200 {
			t.Errorf("%s answers %d %s", path, resp.StatusCode, b)
		}
	}
}
