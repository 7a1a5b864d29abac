package artifact

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
)

func TestReadingsComeBack(t *testing.T) {
	chunks, vectors := sample(3, 8)
	rapid.Check(t, func(r *rapid.T) {
		in := rapid.MapOfN(rapid.String(), rapid.SliceOfN(rapid.Byte(), 1, 300), 0, 20).Draw(r, "readings")
		h, _, _, err := Decode(encode(t, header(8).WithReadings(in), chunks, vectors))
		if err != nil {
			r.Fatal(err)
		}
		out, err := h.Readings()
		if err != nil || len(in) != len(out) || len(in) > 0 && !reflect.DeepEqual(map[string][]byte(out), in) {
			r.Fatalf("%v: %v came back as %v", err, in, out)
		}
	})
}

// A file whose readings do not fit is a file without: it must be readable.
func TestReadingsTooLargeForTheFooterAreLeftOut(t *testing.T) {
	noise := make([]byte, 0, MaxReadingBytes)
	for sum := sha256.Sum256(nil); len(noise) < MaxReadingBytes/2; sum = sha256.Sum256(sum[:]) {
		noise = append(noise, sum[:]...)
	}
	h, _, _, err := Decode(encode(t, header(0).WithReadings(Readings{"noise": noise}), nil, nil))
	if out, _ := h.Readings(); err != nil || out != nil {
		t.Errorf("%v, %d readings", err, len(out))
	}
	text := make([]byte, MaxReadingBytes) // what compresses fits
	h, _, _, err = Decode(encode(t, header(0).WithReadings(Readings{"text": text}), nil, nil))
	if out, _ := h.Readings(); err != nil || len(out["text"]) != len(text) {
		t.Errorf("%v, %d readings", err, len(out))
	}
}

func FuzzReadings(f *testing.F) {
	f.Add(header(0).WithReadings(Readings{"a": []byte("b")}).readings)
	f.Add("KLUv/QQAAQAB")
	f.Fuzz(func(t *testing.T, packed string) {
		out, err := Header{readings: packed}.Readings()
		if err != nil && !errors.Is(err, sheaf.ErrInvalid) {
			t.Fatal(err)
		}
		for key, b := range out {
			if len(key)+len(b) > 2*MaxReadingBytes {
				t.Fatalf("%d bytes", len(b))
			}
		}
	})
}
