package eml

import (
	"os"
	"testing"
)

// A message around which its signature lies is read with its attachments; made by
// openssl smime, and in pieces without a length by openssl cms -stream. One that is
// encrypted is named.
func TestSignedMessagesAreOpened(t *testing.T) {
	for file, want := range map[string]string{"signed": "The signed text|a.txt|attached", "signed-pieces": "The signed text|a.txt|attached", "sealed": ""} {
		content, err := os.ReadFile("testdata/" + file + ".eml")
		if err != nil {
			t.Fatal(err)
		}
		plan, got := readMail(t, string(content))
		if got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
		if sealed := len(plan.Warnings) == 1 && plan.Warnings[0].Code == "message_encrypted"; sealed != (want == "") || !sealed && len(plan.Warnings) > 0 {
			t.Errorf("%s: %+v", file, plan.Warnings)
		}
	}
}

func FuzzCMS(f *testing.F) {
	f.Add(append([]byte{0x30, 0x80, 0x06, 0x09}, oidSigned...))
	f.Add([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if message, sealed := enclosed(b); sealed && message != nil || len(message) > len(b) {
			t.Errorf("%d bytes of %d, sealed %v", len(message), len(b), sealed)
		}
		pieces := 0
		if got := octets(nil, b, 0, &pieces); len(got) > len(b) {
			t.Errorf("%d bytes of %d", len(got), len(b))
		}
	})
}
