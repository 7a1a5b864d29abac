package enrich

import (
	"context"
	"maps"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"sheaf"
)

// A finder detects one kind of personal data. valid confirms a match, which still
// contains its digit separators.
type finder struct {
	kind  string
	re    *regexp.Regexp
	valid func(string) bool
}

// finders in the order in which they claim text: stricter ones first.
var finders = []finder{
	{"EMAIL", regexp.MustCompile(`[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,4}\.[A-Za-z]{2,24}`), nil},
	{"IBAN", regexp.MustCompile(`\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b`), iban},
	{"NATIONAL_ID", regexp.MustCompile(`\b[12]\s?\d{2}\s?(?:0[1-9]|1[0-2]|[2-9]\d)\s?(?:\d{2}|2[AB])\s?\d{3}\s?\d{3}\s?\d{2}\b`), nir},
	{"CARD", regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`), luhn},
	{"NATIONAL_ID", regexp.MustCompile(`\b(?:\d{8}|[XYZ]\d{7})-?[A-HJ-NP-TV-Z]\b`), dni},
	{"NATIONAL_ID", regexp.MustCompile(`\b[1-9]\d{10}\b|\b[1-9]\d \d{3} \d{3} \d{3}\b`), taxID},
	{"NATIONAL_ID", regexp.MustCompile(`\b\d{3}-\d{2}-\d{4}\b`), ssn},
	{"IP", regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{0,4}){2,7}\b`), func(s string) bool { _, err := netip.ParseAddr(s); return err == nil }},
	{"PHONE", regexp.MustCompile(`\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){1,4}\b|\(\d{2,5}\)[ .-]?\d{3,4}[ .-]?\d{3,4}\b|\b0\d{2,4}[ /-]\d{3,8}\b|\b\d{3}[.-]\d{3}[.-]\d{4}\b`), func(s string) bool { n := len(digits(s)); return n >= 7 && n <= 15 }},
}

// longest returns the length of the longest prefix of a match, by groups of digits,
// that is valid; 0 if there is none. The next number often looks like another group.
func (f finder) longest(match string) int {
	for f.valid != nil && !f.valid(match) {
		i := strings.LastIndexAny(match, " -")
		if i < 0 {
			return 0
		}
		match = match[:i]
	}
	return len(match)
}

// Finding is a piece of personal data: bytes [From, To) of the text.
type Finding struct {
	Kind     string // EMAIL, PHONE, CARD (Luhn), IBAN (ISO 7064), IP, NATIONAL_ID
	From, To int
}

// FindPII lists personal data in text, in order. Numbers with a checksum count only
// if it is correct: cards, IBAN, and the national ids of Germany (tax id), Spain
// (DNI, NIE) and France (NIR); those of the United States (SSN) have none and count
// by their form.
func FindPII(text string) []Finding {
	out, _ := findPII(context.Background(), text) // which never ends
	return out
}

// Limits on the text searched at once, so that the context is checked in between.
// No pattern matches as much as maxFinding.
const (
	searchBytes = 64 << 10
	maxFinding  = 512
)

// next finds the first match of f at or after at; to is 0 if there is none.
func (f finder) next(ctx context.Context, text string, at int) (from, to int, err error) {
	for at < len(text) {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		end := min(at+searchBytes, len(text))
		m := f.re.FindStringIndex(text[at:end])
		switch {
		case m != nil && (end == len(text) || at+m[0] <= end-maxFinding):
			return at + m[0], at + m[1], nil
		case end == len(text):
			return 0, 0, nil
		case m != nil: // it may continue past the searched part
			at += m[0]
		default:
			// Nothing begins before the last part, and what begins there may
			// continue past it. The next search starts between words, if possible.
			at = end - 2*maxFinding
			at += max(strings.IndexAny(text[at:end-maxFinding], " \n"), 0)
		}
	}
	return 0, 0, nil
}

func findPII(ctx context.Context, text string) ([]Finding, error) {
	var out []Finding
	for _, f := range finders {
		earlier := len(out) // sorted and disjoint
		for at := 0; at < len(text); {
			from, to, err := f.next(ctx, text, at)
			if err != nil {
				return nil, err
			}
			if to == 0 {
				break
			}
			end := f.longest(text[from:to])
			if end == 0 {
				// a match may begin one group later
				if at = to; f.valid != nil {
					if i := strings.IndexAny(text[from:to], " -"); i > 0 {
						at = from + i + 1
					}
				}
				continue
			}
			at = from + end
			i, _ := slices.BinarySearchFunc(out[:earlier], from+1, func(o Finding, at int) int { return o.To - at })
			if i == earlier || from+end <= out[i].From {
				out = append(out, Finding{f.kind, from, from + end})
			}
		}
		slices.SortFunc(out, func(a, b Finding) int { return a.From - b.From })
	}
	return out, nil
}

// Redact replaces findings by their kind, padded to the same number of bytes so
// that line positions in the text stay correct, and counts them by kind.
func Redact(text string, counts map[string]int) string {
	out, _ := redact(context.Background(), text, counts) // which never ends
	return out
}

func redact(ctx context.Context, text string, counts map[string]int) (string, error) {
	found, err := findPII(ctx, text)
	if err != nil || len(found) == 0 {
		return text, err
	}
	var b strings.Builder
	at := 0
	for _, f := range found {
		counts[f.Kind]++
		b.WriteString(text[at:f.From])
		b.WriteString(mask(f.Kind, f.To-f.From))
		at = f.To
	}
	b.WriteString(text[at:])
	return b.String(), nil
}

func mask(kind string, n int) string {
	label := "[" + kind
	if kind == "NATIONAL_ID" && n < len(label)+1 {
		label = "[ID"
	}
	if n < len(label)+1 {
		return strings.Repeat("*", n)
	}
	return label + strings.Repeat("*", n-len(label)-1) + "]"
}

// masked matches the output of mask.
var masked = regexp.MustCompile(`\[(EMAIL|IBAN|NATIONAL_ID|ID|CARD|IP|PHONE)\**\]`)

// MarkPersonalData records on chunks which kinds of personal data their texts
// contain, or contained before redaction. The error is ctx's.
func MarkPersonalData(ctx context.Context, chunks []sheaf.Chunk) error {
	for i := range chunks {
		c := &chunks[i]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		kinds := map[string]bool{}
		for _, f := range FindPII(c.Text) {
			kinds[f.Kind] = true
		}
		for _, m := range masked.FindAllStringSubmatch(c.Text, -1) {
			if m[1] == "ID" {
				m[1] = "NATIONAL_ID"
			}
			kinds[m[1]] = true
		}
		if len(kinds) == 0 {
			continue
		}
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[sheaf.MetadataPersonal] = strings.Join(slices.Sorted(maps.Keys(kinds)), "\n")
	}
	return nil
}

// Units finds, and with replace replaces, personal data in all units. The error is
// ctx's: some data has then been replaced.
func Units(ctx context.Context, units []sheaf.UnitResult, replace bool) (map[string]int, error) {
	counts := map[string]int{}
	var ended error
	change := func(s *string) {
		if ended != nil {
			return
		}
		r, err := redact(ctx, *s, counts)
		if ended = err; replace {
			*s = r
		}
	}
	for i := range units {
		if ended != nil {
			break
		}
		change(&units[i].Label)
		for k := range units[i].Blocks {
			b := &units[i].Blocks[k]
			change(&b.Text)
			if b.Table == nil {
				continue
			}
			change(&b.Table.Name)
			for c := range b.Table.Columns {
				change(&b.Table.Columns[c])
			}
			for _, row := range b.Table.Rows {
				for c := range row {
					change(&row[c])
				}
			}
		}
	}
	return counts, ended
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

// luhn verifies a card number (ISO/IEC 7812-1 annex B).
func luhn(s string) bool {
	d := digits(s)
	sum := 0
	for i := range len(d) {
		n := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return len(d) >= 13 && len(d) <= 19 && strings.Trim(d, d[:1]) != "" && sum%10 == 0
}

// iban verifies ISO 13616: rotated and converted to a number it is 1 modulo 97.
func iban(s string) bool {
	s = strings.ReplaceAll(s, " ", "")
	if len(s) < 15 || len(s) > 34 {
		return false
	}
	rest := 0
	for _, r := range s[4:] + s[:4] {
		if r >= 'A' {
			rest = (rest*100 + int(r-'A') + 10) % 97
		} else {
			rest = (rest*10 + int(r-'0')) % 97
		}
	}
	return rest == 1
}

// dni verifies the letter of a Spanish DNI or NIE.
func dni(s string) bool {
	if s = strings.ReplaceAll(s, "-", ""); len(s) != 9 {
		return false
	}
	number := strings.NewReplacer("X", "0", "Y", "1", "Z", "2").Replace(s[:1]) + s[1:len(s)-1]
	n := 0
	for _, c := range number {
		n = n*10 + int(c-'0')
	}
	return "TRWAGMYFPDXBNJZSQVHLCKE"[n%23] == s[len(s)-1]
}

// nir verifies the key of a French social security number: 97 minus the remainder.
func nir(s string) bool {
	s = strings.Join(strings.Fields(s), "")
	if len(s) != 15 {
		return false
	}
	n, ok := new(big.Int).SetString(strings.NewReplacer("2A", "19", "2B", "18").Replace(s[:13]), 10)
	if !ok {
		return false
	}
	key := 97 - new(big.Int).Mod(n, big.NewInt(97)).Int64()
	return key == int64(s[13]-'0')*10+int64(s[14]-'0')
}

// taxID verifies a German tax id (ISO 7064 mod 11,10).
func taxID(s string) bool {
	d := digits(s)
	if len(d) != 11 {
		return false
	}
	product := 10
	for _, c := range d[:10] {
		sum := (int(c-'0') + product) % 10
		if sum == 0 {
			sum = 10
		}
		product = sum * 2 % 11
	}
	return (11-product)%10 == int(d[10]-'0')
}

// ssn rejects numbers that the Social Security Administration never assigns.
func ssn(s string) bool {
	return len(s) == 11 && s[:3] != "000" && s[:3] != "666" && s[0] != '9' && s[4:6] != "00" && s[7:] != "0000"
}
