// Package receipt signs deletion receipts and verifies them later, with a key
// derived from those of the installation.
package receipt

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sheaf"
	"sheaf/internal/secrets"
	"sheaf/taskstore"
)

// Algorithm is the signature algorithm of receipts.
const Algorithm = "HMAC-SHA256"

// purpose names the key among those derived from the ring.
const purpose = "receipts"

// MaxBytes limits the size of a receipt to verify.
const MaxBytes = 4 << 20

// Signer signs and verifies. It is safe for concurrent use.
type Signer struct{ ring *secrets.Keyring }

// New returns a Signer. The current key of the ring signs; receipts signed with
// older keys stay valid while the ring holds those.
func New(ring *secrets.Keyring) *Signer { return &Signer{ring} }

// Sign sets the receipt's signature, over everything but the signature.
func (s *Signer) Sign(r *taskstore.Receipt) error {
	r.Signature = nil
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text, err := canonical(raw)
	if err != nil {
		return err
	}
	key, id := s.ring.Key(purpose)
	r.Signature = &taskstore.Signature{Algorithm: Algorithm, KeyID: id, Value: mac(key[:], text)}
	return nil
}

// Verify checks the signature of a receipt as JSON, however it is formatted. The
// error explains why it is not valid: sheaf.ErrInvalid if it is not a signed
// receipt or was changed, secrets.ErrUnknownKey if another installation signed it
// or the key is gone.
func (s *Signer) Verify(raw []byte) (*taskstore.Receipt, error) {
	var r taskstore.Receipt
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%w: this is no receipt: %v", sheaf.ErrInvalid, err)
	}
	switch {
	case r.Format != taskstore.ReceiptFormat:
		return nil, fmt.Errorf("%w: the format is %q, and this version verifies %s", sheaf.ErrInvalid, r.Format, taskstore.ReceiptFormat)
	case r.Signature == nil || r.Signature.Value == "":
		return nil, fmt.Errorf("%w: the receipt is not signed", sheaf.ErrInvalid)
	case r.Signature.Algorithm != Algorithm:
		return nil, fmt.Errorf("%w: the receipt is signed with %q, and this version verifies %s", sheaf.ErrInvalid, r.Signature.Algorithm, Algorithm)
	}
	text, err := canonical(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: this is no receipt: %v", sheaf.ErrInvalid, err)
	}
	key, err := s.ring.KeyOf(purpose, r.Signature.KeyID)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal([]byte(mac(key[:], text)), []byte(r.Signature.Value)) {
		return nil, fmt.Errorf("%w: the receipt was changed after it was signed", sheaf.ErrInvalid)
	}
	return &r, nil
}

func mac(key, text []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write(text) // a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

// canonical returns the signed form: the receipt without its signature, as JSON
// with sorted object members and no white space, whatever fields later versions
// add. Duplicate members are rejected: readers differ on which one counts.
func canonical(raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := value(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows it")
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	delete(m, "signature")
	return json.Marshal(m)
}

// maxDepth limits the nesting of a receipt's JSON.
const maxDepth = 16

func value(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		m := map[string]any{}
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, _ := k.(string) // the decoder returns no other type
			if _, twice := m[name]; twice {
				return nil, fmt.Errorf("%q is given twice", name)
			}
			if m[name], err = value(dec, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = dec.Token()
		return m, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := value(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return t, nil
}
