package receipt

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/secrets"
	"sheaf/taskstore"
)

func ring(t *testing.T, keys ...string) *secrets.Keyring {
	t.Helper()
	r, err := secrets.Parse(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSignatureHoldsForTheReceiptAlone(t *testing.T) {
	first, second := secrets.Generate(), secrets.Generate()
	s := New(ring(t, first))
	r := &taskstore.Receipt{Format: taskstore.ReceiptFormat, ID: "r", TenantID: "t", State: taskstore.ReceiptCompleted, Documents: 2, DocumentIDs: []string{"a", "b"},
		Removed: taskstore.Removed{Objects: 3, ObjectBytes: 1 << 60, Chunks: 12}, Kept: []taskstore.KeptCopy{}, RequestedAt: time.UnixMilli(1_700_000_000_123).UTC()}
	if err := s.Sign(r); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	indented, err := json.MarshalIndent(r, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"as it is": raw, "laid out": indented} {
		got, err := s.Verify(text)
		if err != nil || got.ID != "r" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A new key signs, and what the old one signed stays valid.
	if _, err := New(ring(t, second, first)).Verify(raw); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	if _, err := New(ring(t, second)).Verify(raw); !errors.Is(err, secrets.ErrUnknownKey) {
		t.Errorf("with another installation's key: %v", err)
	}
	for name, change := range map[string][2]string{
		"a count":              {`"objects":3`, `"objects":4`},
		"an id":                {`["a","b"]`, `["a"]`},
		"the state":            {`"completed"`, `"pending"`},
		"something added":      {`"documents":2`, `"documents":2,"more":1`},
		"a member given twice": {`"documents":2`, `"documents":3,"documents":2`},
		"the signature":        {`"value":"`, `"value":"0`},
		"the algorithm":        {Algorithm, "none"},
		"the format":           {taskstore.ReceiptFormat, "sheaf-receipt/9"},
		"something after it":   {`"}}`, `"}} {}`},
	} {
		text := strings.Replace(string(raw), change[0], change[1], 1)
		if text == string(raw) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := s.Verify([]byte(text)); err == nil {
			t.Errorf("%s: the signature holds all the same", name)
		}
	}
	for _, text := range []string{"", "null", "[]", "{}", `{"format":"` + taskstore.ReceiptFormat + `"}`, strings.Repeat("[", 10_000)} {
		if _, err := s.Verify([]byte(text)); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
