package shown

import "testing"

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		format string
		n      int
		want   string
	}{
		{"decimal", 12, "12"}, {"unheard of", 3, "3"}, {"decimal", -1, "-1"}, {"none", 3, ""}, {"bullet", 3, ""},
		{"decimalZero", 7, "07"}, {"decimalZero", 12, "12"},
		{"upperRoman", 1994, "MCMXCIV"}, {"lowerRoman", 4, "iv"}, {"upperRoman", 0, "0"}, {"upperRoman", 4000, "4000"},
		{"lowerLetter", 1, "a"}, {"lowerLetter", 26, "z"}, {"lowerLetter", 27, "aa"}, {"upperLetter", 28, "BB"}, {"upperLetter", 1 << 40, "1099511627776"},
		{"ordinal", 1, "1st"}, {"ordinal", 12, "12th"}, {"ordinal", 22, "22nd"}, {"ordinal", 103, "103rd"},
		{"decimalEnclosedCircle", 3, "③"}, {"decimalEnclosedCircle", 21, "21"}, {"decimalFullWidth", 10, "１０"},
		{"chineseCounting", 1, "一"}, {"chineseCounting", 10, "十"}, {"chineseCounting", 12, "十二"}, {"chineseCounting", 20, "二十"},
		{"chineseCountingThousand", 103, "一百零三"}, {"chineseCountingThousand", 110, "一百一十"}, {"chineseCountingThousand", 2001, "二千零一"}, {"japaneseCounting", 0, "0"},
		{"ideographTraditional", 2, "乙"}, {"ideographTraditional", 11, "11"}, {"russianLower", 3, "в"}, {"russianUpper", 3, "В"}, {"russianLower", 90, "90"},
	} {
		if got := Number(c.format, c.n); got != c.want {
			t.Errorf("%s %d: %q, want %q", c.format, c.n, got, c.want)
		}
	}
}
