package links

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"sheaf"
)

func TestAddress(t *testing.T) {
	base, err := url.Parse("https://example.org/manual/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ref  string
		base *url.URL
		want string
	}{
		{" https://example.org/a b?q=1#x ", nil, "https://example.org/a%20b?q=1#x"}, {"mailto:q@example.org", nil, "mailto:q@example.org"}, {"HTTP://Example.org", nil, "http://Example.org"},
		{"#top", base, ""}, {"", base, ""}, {"javascript:alert(1)", base, ""}, {"data:text/html,x", nil, ""}, {"file:///etc/passwd", nil, ""}, {"http:///x", nil, ""}, {"http://[", nil, ""},
		{"guide.html", nil, ""}, {"guide.html", base, "https://example.org/manual/guide.html"}, {"//cdn.example.org/x", base, "https://cdn.example.org/x"},
		{"https://example.org/" + strings.Repeat("x", 3000), nil, ""},
	} {
		if got := Address(c.ref, c.base); got != c.want {
			t.Errorf("%s: %q, want %q", c.ref, got, c.want)
		}
	}
}

func TestPlace(t *testing.T) {
	got := Place("See the guide, the guide and more", []Link{{"the  guide", "a:1"}, {"the guide", "a:2"}, {"the guide", "a:3"}, {"", "a:4"}})
	want := []sheaf.Link{{Start: 4, End: 13, URI: "a:1"}, {Start: 15, End: 24, URI: "a:2"}, {End: 33, URI: "a:3"}, {End: 33, URI: "a:4"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Place("", []Link{{"x", "a:1"}}); got != nil {
		t.Errorf("links on nothing: %+v", got)
	}
}
