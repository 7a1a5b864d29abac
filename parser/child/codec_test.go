package child

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"

	"sheaf"
)

// fill sets every field of v, however deep, to something that is not zero.
func fill(v reflect.Value, r *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), r)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), r)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 4))
		for i := range v.Len() {
			fill(v.Index(i), r)
		}
	case reflect.String:
		b := make([]rune, 1+r.IntN(5))
		for i := range b {
			b[i] = rune(1 + r.IntN(0x3000))
		}
		v.SetString(string(b))
	case reflect.Int:
		v.SetInt(r.Int64() - r.Int64())
	case reflect.Float64:
		v.SetFloat(r.NormFloat64() + 3)
	default:
		panic("the codec does not know " + v.Type().String())
	}
}

func TestCodecCarriesEveryField(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var u sheaf.UnitResult
		fill(reflect.ValueOf(&u).Elem(), r)
		u.Detail = "" // the parent's own
		sent, need := encodeUnit(nil, &u)
		got, left, err := decodeUnit(sent, 1<<40)
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, u)
		}
		// The child counts what the parent will.
		if need != 1<<40-left {
			t.Fatalf("encoding counts %d, decoding took %d", need, 1<<40-left)
		}
		if _, left, err := decodeUnit(sent, need); err != nil || left != 0 {
			t.Fatalf("it does not fit into its own budget: %d, %v", left, err)
		}
		if _, _, err := decodeUnit(sent, need-1); !errors.Is(err, errBudget) {
			t.Fatalf("a byte less: %v", err)
		}
	}
	for _, u := range []sheaf.UnitResult{{}, {Blocks: []sheaf.Block{}}, {Blocks: []sheaf.Block{{Table: &sheaf.Table{Rows: [][]string{nil, {}, {""}}}}}}} {
		sent, _ := encodeUnit(nil, &u)
		if got, _, err := decodeUnit(sent, 1<<40); err != nil || !reflect.DeepEqual(got, u) {
			t.Errorf("%v: got %+v, want %+v", err, got, u)
		}
	}
}

// FuzzDecodeUnit holds that damaged bytes are an error, never a panic or a
// large allocation, and that what is accepted means the same when sent again.
func FuzzDecodeUnit(f *testing.F) {
	var u sheaf.UnitResult
	fill(reflect.ValueOf(&u).Elem(), rand.New(rand.NewPCG(3, 4)))
	sent, _ := encodeUnit(nil, &u)
	f.Add(sent)
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xFF}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, _, err := decodeUnit(b, 1<<30)
		if err != nil {
			return
		}
		first, _ := encodeUnit(nil, &u)
		again, _, err := decodeUnit(first, 1<<40)
		if second, _ := encodeUnit(nil, &again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%v: %+v became %+v", err, u, again)
		}
	})
}

func TestFramesSurviveTheWay(t *testing.T) {
	var pipe bytes.Buffer
	w := bufio.NewWriter(&pipe)
	bodies := [][]byte{nil, []byte("x"), bytes.Repeat([]byte("long "), 1<<19)}
	for _, b := range bodies {
		if err := writeFrame(w, kindUnit, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeFrame(w, kindUnit, make([]byte, maxFrameBytes+1)); err == nil {
		t.Error("a frame over the limit was written")
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(&pipe)
	var buf []byte
	for _, want := range bodies {
		kind, got, next, err := readFrame(r, buf)
		if buf = next; err != nil || kind != kindUnit || !bytes.Equal(got, want) {
			t.Fatalf("kind %c, %d bytes, %v", kind, len(got), err)
		}
	}
	if _, _, _, err := readFrame(r, buf); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// FuzzReadFrame holds that a lying header makes nobody allocate what was
// announced, and that the reader ends.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{kindUnit, 0, 0, 0, 2, 'h', 'i', kindDone, 0, 0, 0, 0})
	f.Add([]byte{kindUnit, 0x03, 0xFF, 0xFF, 0xFF, 1})
	f.Add([]byte{'?', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		var buf []byte
		for read := 0; ; {
			_, body, next, err := readFrame(r, buf)
			buf = next
			if cap(buf) > 2*len(b)+2<<20 {
				t.Fatalf("%d bytes held for an input of %d", cap(buf), len(b))
			}
			if err != nil {
				return
			}
			if read += frameHeader + len(body); read > len(b) {
				t.Fatal("more was read than there is")
			}
		}
	})
}
