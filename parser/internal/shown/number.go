// Package shown writes what a document shows and its file only describes: the numbers
// of lists and headings, and characters that only a certain font has. Formats use it
// where they make text.
package shown

import (
	"strconv"
	"strings"
	"unicode"
)

// Number writes n in a number format of ISO/IEC 29500-1, 17.18.59. It is "" for none
// and for bullets; a format that is not known is decimal, as are numbers that a format
// cannot express.
func Number(format string, n int) string {
	switch format {
	case "none", "bullet":
		return ""
	case "decimalZero":
		if n >= 0 && n < 10 {
			return "0" + strconv.Itoa(n)
		}
	case "upperRoman":
		return roman(n)
	case "lowerRoman":
		return strings.ToLower(roman(n))
	case "upperLetter":
		return letters(n, 'A', 26)
	case "lowerLetter":
		return letters(n, 'a', 26)
	case "ordinal":
		return strconv.Itoa(n) + ordinalEnd(n)
	case "decimalEnclosedCircle", "decimalEnclosedCircleChinese":
		if n >= 1 && n <= 20 {
			return string(rune('①' + n - 1))
		}
	case "decimalFullWidth", "decimalFullWidth2":
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return r - '0' + '０'
			}
			return r
		}, strconv.Itoa(n))
	case "chineseCounting", "chineseCountingThousand", "ideographDigital", "japaneseCounting", "taiwaneseCounting", "taiwaneseCountingThousand", "japaneseDigitalTenThousand":
		return chinese(n)
	case "ideographTraditional":
		if stems := []rune("甲乙丙丁戊己庚辛壬癸"); n >= 1 && n <= len(stems) {
			return string(stems[n-1])
		}
	case "russianLower", "russianUpper":
		if abc := []rune("абвгдежзиклмнопрстуфхцчшщыэюя"); n >= 1 && n <= len(abc) {
			if format == "russianUpper" {
				return string(unicode.ToUpper(abc[n-1]))
			}
			return string(abc[n-1])
		}
	}
	return strconv.Itoa(n)
}

// maxRepeats limits letters, which are repeated: z is followed by aa.
const maxRepeats = 8

func letters(n int, first rune, of int) string {
	if n < 1 || n > of*maxRepeats {
		return strconv.Itoa(n)
	}
	return strings.Repeat(string(first+rune((n-1)%of)), (n-1)/of+1)
}

func roman(n int) string {
	if n < 1 || n > 3999 {
		return strconv.Itoa(n)
	}
	var b strings.Builder
	for _, d := range []struct {
		value int
		text  string
	}{{1000, "M"}, {900, "CM"}, {500, "D"}, {400, "CD"}, {100, "C"}, {90, "XC"}, {50, "L"}, {40, "XL"}, {10, "X"}, {9, "IX"}, {5, "V"}, {4, "IV"}, {1, "I"}} {
		for ; n >= d.value; n -= d.value {
			b.WriteString(d.text)
		}
	}
	return b.String()
}

func ordinalEnd(n int) string {
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			return "st"
		case 2:
			return "nd"
		case 3:
			return "rd"
		}
	}
	return "th"
}

// chinese writes n as it is counted: 十二 is twelve, 一百零三 one hundred and three.
func chinese(n int) string {
	if n < 1 || n > 9999 {
		return strconv.Itoa(n)
	}
	digits, units := []rune("零一二三四五六七八九"), []rune("千百十")
	var b strings.Builder
	gap := false
	for i, unit := 0, 1000; unit > 0; i, unit = i+1, unit/10 {
		d := n / unit % 10
		if d == 0 {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteRune(digits[0])
			gap = false
		}
		if d != 1 || unit != 10 || b.Len() > 0 {
			b.WriteRune(digits[d])
		}
		if unit > 1 {
			b.WriteRune(units[i])
		}
	}
	return b.String()
}
