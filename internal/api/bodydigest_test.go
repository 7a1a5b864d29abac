package api

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// digestIn digests a body that arrives in pieces of the given sizes, over and over.
func digestIn(contentType string, body []byte, pieces []int) string {
	d := newBodyDigest(contentType)
	for i := 0; len(body) > 0; i++ {
		n := min(len(body), pieces[i%len(pieces)])
		_, _ = d.Write(body[:n])
		body = body[n:]
	}
	return d.String()
}

type formPart struct{ name, file, body string }

func form(t interface{ Fatal(...any) }, boundary string, parts []formPart) []byte {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		create := func() (io.Writer, error) { return w.CreateFormFile(p.name, p.file) }
		if p.file == "" {
			create = func() (io.Writer, error) { return w.CreateFormField(p.name) }
		}
		part, err := create()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(p.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Forms with the same parts in the same order have one digest, whatever their
// boundary and however they arrive; all others have other digests.
func TestFormsAreToldApartByTheirParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "\r\n", "\n", "-", "--", "--one", "\r\n--one", "\n--tw", "--two-and-more--", "\r\n--on", "text"})
		draw := rapid.Custom(func(t *rapid.T) formPart {
			return formPart{
				rapid.SampledFrom([]string{"file", "metadata"}).Draw(t, "name"), rapid.SampledFrom([]string{"", "a.txt", "b.txt"}).Draw(t, "file"),
				strings.Join(rapid.SliceOfN(text, 0, 6).Draw(t, "body"), ""),
			}
		})
		parts, others := rapid.SliceOfN(draw, 0, 4).Draw(t, "parts"), rapid.SliceOfN(draw, 0, 4).Draw(t, "others")
		pieces := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 5).Draw(t, "pieces")
		boundaries := []string{"7f3ac9", "----WebKitFormBoundaryZz0123456789"} // what a client makes up is in none of the parts
		type tried struct{ digest, parts string }
		var all []tried
		for _, p := range [][]formPart{parts, others} {
			for _, boundary := range boundaries {
				media := "multipart/form-data; boundary=" + boundary
				body := form(t, boundary, p)
				whole := digestIn(media, body, []int{len(body)})
				if in := digestIn(media, body, pieces); in != whole {
					t.Fatalf("in pieces of %v it is %s, whole %s: %q", pieces, in, whole, body)
				}
				all = append(all, tried{whole, fmt.Sprintf("%q", p)})
			}
		}
		for _, a := range all {
			for _, b := range all {
				if (a.digest == b.digest) != (a.parts == b.parts) {
					t.Fatalf("%s has %s, and %s has %s", a.parts, a.digest, b.parts, b.digest)
				}
			}
		}
	})
}

func TestOtherBodiesAreDigestedAsTheyAre(t *testing.T) {
	for _, media := range []string{"", "text/plain", "multipart/mixed; boundary=x", "multipart/form-data", "form-data/;;;"} {
		a, b := digestIn(media, []byte("\n--x\nsome"), []int{3}), digestIn(media, []byte("\n--y\nsome"), []int{3})
		if a == b || digestBytes(a) != 9 {
			t.Errorf("%q: %s and %s", media, a, b)
		}
	}
	if empty := digestIn("text/plain", nil, []int{1}); digestBytes(empty) != 0 {
		t.Errorf("of nothing: %s", empty)
	}
}
