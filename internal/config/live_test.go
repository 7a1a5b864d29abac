package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLiveSecretFollowsItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load("", []string{"SHEAF_INDEX_API_KEY_FILE=" + file, "SHEAF_CHAT_API_KEY=fixed"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Live("chat.api_key") != nil {
		t.Error("a setting that is not from a file is live")
	}
	live := cfg.Live("index.api_key")
	if live() != "one" {
		t.Fatalf("it is %q", live())
	}
	if err := os.WriteFile(file, []byte("two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); live() != "two"; time.Sleep(20 * time.Millisecond) { // it is read once a second
		if time.Now().After(deadline) {
			t.Fatal("the new key is not read")
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if live() != "two" {
		t.Error("a missing file takes the key away")
	}
}
