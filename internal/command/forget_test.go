package command

import (
	"net/http"
	"os"
	"slices"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// What a process has cached of a deleted document goes.
func TestDeletedDocumentsLeaveTheCaches(t *testing.T) {
	endpoint := engine(t, "SHEAF_TEST_S3_ENDPOINT")
	a := built(t, func(c *config.Config) {
		c.Blob.Driver, c.Blob.Endpoint, c.Blob.Bucket = "s3", endpoint, "cached"+sheaf.NewID()[20:]
		c.Blob.AccessKey, c.Blob.SecretKey = config.Secret(os.Getenv("SHEAF_TEST_S3_ACCESS_KEY")), config.Secret(os.Getenv("SHEAF_TEST_S3_SECRET_KEY"))
	})
	c, _ := running(t, a)
	var ids []string
	for _, name := range []string{"herons", "egrets"} {
		ids = append(ids, send(t, c, source{name: name + ".md", open: reader("# " + name + "\n\nAll about " + name + ".\n")})...)
	}
	cached := func() (documents []string) {
		for _, key := range a.files.Unused() {
			documents = append(documents, sheaf.OriginalOf(key))
		}
		return slices.Sorted(slices.Values(documents))
	}
	forgets := func(want []string) {
		t.Helper()
		if err := a.forget(t.Context()); err != nil || !slices.Equal(cached(), want) {
			t.Errorf("cached are %v, want %v; %v", cached(), want, err)
		}
	}
	waitFor(t, "tasks to let go of the files", func() bool { return len(cached()) == len(ids) })
	forgets(slices.Sorted(slices.Values(ids)))
	if err := c.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+ids[0], nil, nil); err != nil {
		t.Fatal(err)
	}
	forgets(ids[1:])
	if left, err := os.ReadDir(a.path("cache")); err != nil || len(left) != 1 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}
