package command

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Links in folders are followed to files, not to folders, and nothing is left out
// unsaid.
func TestFoldersAreWalkedThroughLinks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"store/blob", "docs/own.txt", "docs/sub/deep.txt", "docs/.hidden"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"docs/linked.txt": "../store/blob", "docs/circle": "..", "docs/broken.txt": "nowhere", "docs.link": "docs"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "docs", "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, root := range []string{"docs", "docs/", "docs.link", "docs.link/"} {
		c := &collected{seen: map[string]bool{}}
		if err := c.walk(filepath.Join(dir, root)+root[len(filepath.Clean(root)):], selection{}); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range c.files {
			names = append(names, f.name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"deep.txt", "linked.txt", "own.txt"}) || len(c.links) != 1 || filepath.Base(c.links[0]) != "circle" || len(c.unread) != 1 || filepath.Base(c.unread[0].Name) != "broken.txt" || c.left != 2 {
			t.Errorf("%s: %q, links %q, unread %v, left %d", root, names, c.links, c.unread, c.left)
		}
	}
	c := &collected{seen: map[string]bool{}}
	if err := c.walk(filepath.Join(dir, "docs/linked.txt"), selection{}); err != nil || len(c.files) != 1 || c.files[0].name != "linked.txt" || c.files[0].size != int64(len("store/blob")) {
		t.Errorf("%v: %+v", err, c.files)
	}
}
