package shown

import "testing"

func TestSymbol(t *testing.T) {
	for _, c := range []struct {
		font string
		code rune
		want rune
	}{
		{"Symbol", 0xF06D, 'μ'}, {"Symbol", 0x6D, 'μ'}, {"symbol", 0xF061, 'α'}, {"Symbol", 0xF057, 'Ω'}, {"Symbol", 0xF0A3, '≤'}, {"Symbol", 0xF0B3, '≥'}, {"Symbol", 0xF0B0, '°'}, {"Symbol", 0xF0B1, '±'},
		{"Symbol", 0xF0B4, '×'}, {"Symbol", 0xF0B7, '•'}, {"Symbol", 0xF0AE, '→'}, {"Symbol", 0xF0E5, '∑'}, {"Symbol", 0xF0D6, '√'}, {"Symbol", 0xF0F2, '∫'}, {"Symbol", 0xF0FE, '⎭'}, {"Symbol", 0xF020, ' '}, {"Symbol", 0xF041, 'Α'}, {"Symbol", 0xF07E, '∼'}, {"Symbol", 0xF0A0, '€'},
		{"Symbol", 0xF060, 0}, {"Symbol", 0xF090, 0}, {"Symbol", 0x263A, 0}, {"Symbol", 3, 0},
		{"Wingdings", 0xF0FE, '☑'}, {"Wingdings", 0xF0A8, '☐'}, {"Wingdings", 0xF083, '③'}, {"Wingdings", 0xF095, '❿'}, {"Wingdings", 0xF041, 0}, {"Wingdings 2", 0xF052, '☑'}, {"Webdings", 0xF061, 0}, {"", 0xF06D, 0},
	} {
		if r, known := Symbol(c.font, c.code); known != (c.want != 0) || known && r != c.want {
			t.Errorf("%s %X: %c, %v; want %c", c.font, c.code, r, known, c.want)
		}
	}
	if got := Text("Symbol", "50 \uf06dg at 20 \uf0b0C \uf060"); got != "50 μg at 20 °C \uf060" {
		t.Errorf("%q", got)
	}
}

func TestAdobe(t *testing.T) {
	for from, want := range map[rune]rune{0xF76F: 'o', 0xF731: '1', 0xF7E9: 'é', 0xF8EB: '⎛', 0xF8F1: '⎧', 0xF8FE: '⎭', 'x': 'x', 0xF8FF: 0xF8FF, 0xE000: 0xE000} {
		if got := Adobe(from); got != want {
			t.Errorf("%X: %c, want %c", from, got, want)
		}
	}
}
