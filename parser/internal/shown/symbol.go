package shown

import "strings"

// Greek letters and signs, ticks and boxes have codes of their own in some fonts, and
// Adobe's fonts keep small capitals in the private use area of Unicode: here they become
// characters that every reader and search knows.

// symbol is the encoding of the font Symbol from 0x20 (PDF 32000-1, annex D.5); a space
// is a character without an equivalent.
var symbol = []rune(" !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_ αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼ " +
	strings.Repeat(" ", 0x20) +
	"€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪ 〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭")

// wingdings holds what documents use of the font: ticks, boxes, bullets and arrows.
var wingdings = map[rune]rune{
	0x21: '✏', 0x22: '✂', 0x28: '☎', 0x29: '✆', 0x2A: '✉', 0x46: '☞', 0x4A: '☺', 0x4C: '☹', 0x51: '✈', 0x6C: '●', 0x6D: '❍', 0x6E: '■', 0x6F: '□', 0x70: '□',
	0x71: '❑', 0x72: '❒', 0x73: '⬧', 0x74: '⧫', 0x75: '◆', 0x76: '❖', 0x77: '⬥', 0x80: '⓪', 0x9E: '·', 0x9F: '•', 0xA1: '○', 0xA4: '◉', 0xA7: '▪', 0xA8: '☐', 0xAB: '★',
	0xD5: '⌫', 0xD8: '➢', 0xDC: '➲', 0xDF: '←', 0xE0: '→', 0xE1: '↑', 0xE2: '↓', 0xE8: '➔', 0xEF: '⇦', 0xF0: '⇨', 0xF1: '⇧', 0xF2: '⇩', 0xF3: '⬄', 0xFB: '✗', 0xFC: '✓', 0xFD: '☒', 0xFE: '☑',
}

var wingdings2 = map[rune]rune{0x4F: '✗', 0x50: '✓', 0x51: '☒', 0x52: '☑', 0x53: '☒', 0x54: '☒', 0x97: '●', 0xA2: '■', 0xA3: '☐', 0xAE: '◆'}

// HasSymbols reports whether Symbol knows a font.
func HasSymbols(font string) bool {
	switch strings.ToLower(strings.TrimSpace(font)) {
	case "symbol", "symbolmt", "wingdings", "wingdings 2":
		return true
	}
	return false
}

// Symbol returns what the font shows for a code, which may lie in the private use area from
// U+F000 as office programs store it. known is false if the font is none of these, or
// shows nothing that other fonts have.
func Symbol(font string, code rune) (r rune, known bool) {
	if code >= 0xF000 && code <= 0xF0FF {
		code -= 0xF000
	}
	switch strings.ToLower(strings.TrimSpace(font)) {
	case "symbol", "symbolmt":
		if at := int(code) - 0x20; at >= 0 && at < len(symbol) && (symbol[at] != ' ' || at == 0) {
			return symbol[at], true
		}
	case "wingdings":
		if code >= 0x81 && code <= 0x8A {
			return '①' + code - 0x81, true
		}
		if code >= 0x8C && code <= 0x95 {
			return '❶' + code - 0x8C, true
		}
		r, known = wingdings[code]
		return r, known
	case "wingdings 2":
		r, known = wingdings2[code]
		return r, known
	}
	return 0, false
}

// Text replaces the private codes of a font in a text. Others are kept.
func Text(font, text string) string {
	if !strings.ContainsFunc(text, private) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if private(r) {
			if s, ok := Symbol(font, r); ok {
				return s
			}
		}
		return r
	}, text)
}

func private(r rune) bool { return r >= 0xF020 && r <= 0xF0FF }

// pieces are the parts of large brackets, from U+F8EB (Adobe Glyph List).
var pieces = []rune("⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪⎮⎞⎟⎠⎤⎥⎦⎫⎬⎭")

// Adobe returns the character behind a private code of the Adobe Glyph List: the digits
// and letters that fonts have in a second shape, and parts of brackets. Others are
// returned unchanged.
func Adobe(r rune) rune {
	switch {
	case r >= 0xF730 && r <= 0xF739:
		return r - 0xF730 + '0'
	case r >= 0xF761 && r <= 0xF77A:
		return r - 0xF761 + 'a'
	case r >= 0xF7E0 && r <= 0xF7FE && r != 0xF7F7:
		return r - 0xF700 // à to þ as small capitals
	case r >= 0xF8EB && r <= 0xF8FE:
		return pieces[r-0xF8EB]
	case r == 0xF724:
		return '$'
	case r == 0xF726:
		return '&'
	case r == 0xF7A2:
		return '¢'
	}
	return r
}
