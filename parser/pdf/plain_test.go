package pdf

import (
	"fmt"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// A fingerprint may not change with the way it is computed: every page of every
// document would count as changed.
func TestValuesAreHashedAsEver(t *testing.T) {
	for _, o := range []types.Object{
		types.Integer(0), types.Integer(-7), types.Integer(1 << 40), types.Boolean(true), types.Name(""), types.Name("DeviceRGB"),
		types.Name("a%20b\x00"), types.StringLiteral("x"), types.HexLiteral("00FF"),
	} {
		if got, want := string(plain(nil, o)), fmt.Sprintf("%T %v", o, o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if string(plain(nil, types.Float(0.001))) == string(plain(nil, types.Float(0.002))) { // fmt shows two digits
		t.Error("fractions that differ are hashed alike")
	}
}
