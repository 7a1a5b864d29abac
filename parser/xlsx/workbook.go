package xlsx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/rowio"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

const (
	// maxSheetBytes limits one worksheet's XML: Excel's largest sheet, 1,048,576
	// rows, with 25 columns.
	maxSheetBytes = 3 << 30
	// maxStringsBytes limits the memory of the shared strings.
	maxStringsBytes = 256 << 20
	maxSheets       = 2_000
	// bufferedRows is the size up to which a sheet is held in memory, so that
	// merged cells, which follow the rows, can be filled in.
	bufferedRows = 20_000
	// maxBufferedCells and maxBufferedBytes limit the same by width and text.
	maxBufferedCells = 2_000_000
	maxBufferedBytes = 48 << 20
	// maxCellBytes is Excel's limit, 32,767 characters, in the longest UTF-8.
	maxCellBytes = 4 * 32_767
	// maxTextRatio: a shared string may be shown by any number of cells. Legitimate
	// workbooks show at most some 20 bytes of text per byte of the file read; a
	// bomb, millions.
	maxTextRatio  = 200
	freeTextBytes = 64 << 20
)

// sheet is a worksheet of the workbook.
type sheet struct {
	name   string
	own    string // the name as stored
	part   string
	hidden bool
}

// numberFormat is how a cell shows its number.
type numberFormat uint8

const (
	plain numberFormat = iota
	date
	clock
	dateTime
	special // any other format that changes a number's look
	percent // without decimals; each further value adds one decimal
)

// maxPercentDigits is the maximum number of decimals; further ones are not shown.
const maxPercentDigits = 10

type workbook struct {
	z       *zipfile.Archive
	sheets  []sheet
	formats []numberFormat // by cell style
	ids     []int          // of their number formats, likewise
	codes   map[int]formatCode
	long    bool // the format codes are longer than any that Excel writes
	epoch   time.Time
	strings stringTable
	text    int64 // shown in this pass
	charts  int
	images  int
	looks   *looks // nil unless the workbook is of moderate size

	moderate bool // see isModerate

	besides besides

	unsolved map[string]int        // formulas without a stored result, by part of the sheet
	links    map[string]*addresses // behind the cells, by part of the sheet
}

// stringTable holds the shared strings in one block: a million small strings would
// cost the collector more than their bytes do.
type stringTable struct {
	bytes []byte
	ends  []uint32
}

func (t *stringTable) get(i int) string {
	if i < 0 || i >= len(t.ends) {
		return ""
	}
	from := uint32(0)
	if i > 0 {
		from = t.ends[i-1]
	}
	return string(t.bytes[from:min(t.ends[i], from+maxCellBytes)])
}

func damaged(part string, err error) error {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f
	}
	if errors.Is(err, xmlscan.ErrDepth) {
		return sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The workbook's markup is nested more than %d levels deep; save it again in Excel and upload that.", xmlscan.MaxDepth)
	}
	return zipfile.Invalid("xlsx", "its part %s is damaged: %v", part, err)
}

// open reads everything but the sheets and the strings.
func open(z *zipfile.Archive) (*workbook, error) {
	main := z.Main("xl/workbook.xml")
	p, err := z.Part(main, zipfile.MaxPartBytes)
	if err != nil {
		if errors.Is(err, zipfile.ErrMissing) {
			return nil, zipfile.Invalid("xlsx", "it has no workbook part")
		}
		return nil, err
	}
	defer p.Close()
	rels := z.Rels(main)
	w := &workbook{z: z, epoch: time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)}
	if strings.HasSuffix(main, ".bin") {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "The workbook is in the binary XLSB form, which cannot be read; save it as XLSX and upload that.")
	}
	for s := xmlscan.New(p); len(w.sheets) < maxSheets; {
		k, err := s.Next()
		if err != nil {
			return nil, damaged(main, err)
		}
		if k == xmlscan.EOF {
			break
		}
		if k != xmlscan.Start {
			continue
		}
		switch string(s.Name()) {
		case "workbookPr":
			if v := s.Attr("date1904"); v == "1" || v == "true" {
				w.epoch = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
			}
		case "sheet":
			rel, ok := rels[s.RelID()]
			if !ok || rel.Type != "worksheet" {
				if rel.Type == "chartsheet" {
					w.charts++
				}
				continue
			}
			st := s.Attr("state")
			own := s.Attr("name")
			w.sheets = append(w.sheets, sheet{name: clean.Line(clean.Clip(own, 200)), own: own, part: rel.Target, hidden: st == "hidden" || st == "veryHidden"})
		}
	}
	if len(w.sheets) == 0 && w.charts == 0 {
		return nil, zipfile.Invalid("xlsx", "it lists no worksheets")
	}
	for _, e := range z.File {
		n := strings.ToLower(e.Name)
		if strings.HasPrefix(n, "xl/charts/chart") {
			w.charts++
		} else if strings.HasPrefix(n, "xl/media/") {
			w.images++
		}
	}
	for _, rel := range rels {
		if rel.Type == "styles" {
			w.readFormats(rel.Target)
		}
	}
	w.moderate = w.isModerate()
	return w, nil
}

// readFormats determines which cell styles show dates. With damaged styles, numbers
// are plain.
func (w *workbook) readFormats(part string) {
	p, err := w.z.Part(part, zipfile.MaxPartBytes)
	if err != nil {
		return
	}
	defer p.Close()
	custom := map[int]numberFormat{}
	w.codes = map[int]formatCode{}
	in, bytes := false, 0
	for s := xmlscan.New(p); len(w.formats) < 1<<17; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return
		}
		if k == xmlscan.Text { // text between elements belongs to the last element's name
			continue
		}
		switch name := string(s.Name()); {
		case k == xmlscan.Start && name == "numFmt":
			if id, err := strconv.Atoi(s.Attr("numFmtId")); err == nil {
				code := s.Attr("formatCode")
				custom[id] = formatOf(code)
				bytes += len(code)
				w.long = w.long || len(code) > maxFormatBytes || bytes > maxFormatsMost
				if _, twice := w.codes[id]; !twice && !w.long {
					w.codes[id] = formatCode{code, clean.Clip(s.Attr("formatCode16"), maxFormatBytes)}
				}
			}
		case name == "cellXfs":
			in = k == xmlscan.Start
		case k == xmlscan.Start && in && name == "xf":
			id, _ := strconv.Atoi(s.Attr("numFmtId"))
			f, ok := custom[id]
			if !ok {
				f = builtin(id)
			}
			w.formats, w.ids = append(w.formats, f), append(w.ids, id)
		}
	}
}

// builtin returns the formats of ISO/IEC 29500-1, 18.8.30; 27–58 are East Asian dates.
func builtin(id int) numberFormat {
	switch {
	case id == 9:
		return percent
	case id == 10:
		return percent + 2
	case id >= 14 && id <= 17 || id >= 27 && id <= 31 || id == 36 || id >= 50 && id <= 54 || id == 57 || id == 58:
		return date
	case id >= 18 && id <= 21 || id >= 32 && id <= 35 || id >= 45 && id <= 47 || id == 55 || id == 56:
		return clock
	case id == 22:
		return dateTime
	case id >= 1 && id <= 8 || id >= 11 && id <= 13 || id >= 37 && id <= 44 || id == 48:
		return special
	}
	return plain // 49 is text
}

// formatOf parses a format code only as far as needed to classify it.
func formatOf(code string) numberFormat {
	whole := code
	code, _, _ = strings.Cut(code, ";")
	day, hour, pct := false, false, false
	for i := 0; i < len(code); i++ {
		switch c := code[i] | 0x20; c {
		case '"':
			if j := strings.IndexByte(code[i+1:], '"'); j >= 0 {
				i += j + 1
			} else {
				i = len(code)
			}
		case '\\' | 0x20, '_' | 0x20, '*':
			i++
		case '[' | 0x20:
			j := strings.IndexByte(code[i:], ']')
			if j < 0 {
				i = len(code)
				break
			}
			if in := strings.ToLower(code[i+1 : i+j]); strings.Trim(in, "hms") == "" && in != "" {
				hour = true
			}
			i += j
		case 'y', 'd':
			day = true
		case 'h', 's':
			hour = true
		case 'm':
			// A month unless next to hours or seconds; it may be both.
			if !hour && !strings.Contains(strings.ToLower(code[i:]), ":s") {
				day = day || !strings.ContainsAny(strings.ToLower(code), "hs")
			}
		case '%':
			pct = true
		case 'g':
			if strings.HasPrefix(strings.ToLower(code[i:]), "general") {
				i += 6
			}
		}
	}
	switch {
	case day && hour:
		return dateTime
	case day:
		return date
	case hour:
		return clock
	case pct:
		_, fraction, _ := strings.Cut(code, ".")
		return percent + numberFormat(min(len(fraction)-len(strings.TrimLeft(fraction, "0")), maxPercentDigits))
	case whole == "" || strings.EqualFold(whole, "general") || whole == "@":
		return plain
	}
	return special
}

func (w *workbook) format(style int) numberFormat {
	if style < 0 || style >= len(w.formats) {
		return plain
	}
	return w.formats[style]
}

// number formats the value v of a cell with style st.
func (w *workbook) number(v []byte, st int) string {
	f := w.format(st)
	if (f == plain || f == special) && tidy(v) {
		return string(v)
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(string(v)), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return clean.Clip(string(v), 100)
	}
	if f == plain || f == special {
		return general(x)
	}
	if f >= percent {
		// Excel rounds the 15 digits it keeps, so 0.145 is 15 %, whatever its bits
		// say.
		p, _ := strconv.ParseFloat(strconv.FormatFloat(x*100, 'g', 15, 64), 64)
		scale := math.Pow10(int(f - percent))
		return strconv.FormatFloat(math.Round(p*scale)/scale, 'f', int(f-percent), 64) + "%"
	}
	if x < 0 || x >= 2958466 { // outside 1900–9999 Excel shows no date either
		return general(x)
	}
	secs := int64(math.Round(x * 86400))
	t := w.epoch.Add(time.Duration(secs/86400) * 24 * time.Hour).Add(time.Duration(secs%86400) * time.Second)
	if days := secs / 86400; days < 60 && w.epoch.Year() == 1899 {
		t = t.AddDate(0, 0, 1) // Excel counts a nonexistent 29 February 1900
	} else if days >= 100_000 {
		// A Duration reaches 292 years; later days are added as days.
		t = w.epoch.AddDate(0, 0, int(days)).Add(time.Duration(secs%86400) * time.Second)
	}
	switch {
	case f == clock && secs < 86400:
		return t.Format("15:04:05")
	case f == clock:
		return fmt.Sprintf("%d:%02d:%02d", secs/3600, secs/60%60, secs%60)
	case f == date:
		return t.Format("2006-01-02")
	}
	return t.Format("2006-01-02 15:04:05")
}

// tidy reports whether the number is stored the way it is shown: short, without an
// exponent or redundant zeros. Most are.
func tidy(v []byte) bool {
	if len(v) > 0 && v[0] == '-' {
		v = v[1:]
	}
	point := -1
	for i, c := range v {
		if c == '.' && point < 0 && i > 0 {
			point = i
		} else if c < '0' || c > '9' {
			return false
		}
	}
	whole := v
	if point >= 0 {
		if whole = v[:point]; v[len(v)-1] == '0' || v[len(v)-1] == '.' {
			return false
		}
	}
	return len(v) > 0 && len(v) <= 15 && (len(whole) == 1 || whole[0] != '0')
}

// general formats an unformatted number with the 15 digits that Excel keeps
// (0.1+0.2 is stored as 0.30000000000000004).
func general(x float64) string {
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if len(s)-strings.Count(s, ".") > 15 {
		return strconv.FormatFloat(x, 'G', 15, 64)
	}
	return s
}

// readStrings loads the shared strings.
func (w *workbook) readStrings(ctx context.Context) error {
	if w.strings.ends != nil {
		return nil
	}
	w.strings.ends = []uint32{}
	part := "xl/sharedStrings.xml"
	for _, rel := range w.z.Rels(w.z.Main("xl/workbook.xml")) {
		if rel.Type == "sharedStrings" {
			part = rel.Target
		}
	}
	p, err := w.z.Part(part, 2<<30)
	if errors.Is(err, zipfile.ErrMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	s := xmlscan.New(p)
	inText, phonetic := false, 0
	from := 0
	for {
		k, err := s.Next()
		if err != nil {
			return damaged(part, err)
		}
		switch k {
		case xmlscan.EOF:
			return nil
		case xmlscan.Start:
			switch string(s.Name()) {
			case "si":
				from = len(w.strings.bytes)
			case "t":
				inText = phonetic == 0
			case "rPh": // pronunciation of the text, in Japanese workbooks
				phonetic++
			}
		case xmlscan.Text:
			if inText && len(w.strings.bytes)-from < rowio.MaxCellBytes {
				w.strings.bytes = append(w.strings.bytes, s.Text()...)
			}
		case xmlscan.End:
			switch string(s.Name()) {
			case "t":
				inText = false
			case "rPh":
				phonetic = max(0, phonetic-1)
			case "si":
				w.strings.ends = append(w.strings.ends, uint32(len(w.strings.bytes)))
				if len(w.strings.bytes)+4*len(w.strings.ends) > maxStringsBytes {
					return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The workbook holds more than %d MB of text; save its sheets as CSV files and upload those.", maxStringsBytes>>20)
				}
				if len(w.strings.ends)&0xffff == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
	}
}

// column parses the letters of a cell reference: "AB12" is 27. -1 if there are none.
func column(ref []byte) int {
	n := 0
	for _, c := range ref {
		if c |= 0x20; c < 'a' || c > 'z' {
			break
		}
		if n = n*26 + int(c-'a') + 1; n > rowio.MaxColumns {
			return -1
		}
	}
	return n - 1
}

type merge struct{ r0, c0, r1, c1 int }

// rows streams the non-empty rows of a sheet, in order, with the row's own number
// in the sheet. Each row is a new slice. In a workbook of moderate size numbers are
// shown in their formats.
func (w *workbook) rows(ctx context.Context, sh sheet, on func(number int, row []string) error) error {
	p, err := w.z.Part(sh.part, maxSheetBytes)
	if errors.Is(err, zipfile.ErrMissing) {
		return zipfile.Invalid("xlsx", "its sheet %q is missing", sh.name)
	}
	if err != nil {
		return err
	}
	defer p.Close()
	if w.unsolved == nil {
		w.unsolved = map[string]int{}
	}
	w.unsolved[sh.part] = 0
	links := w.addresses(sh.part)
	var (
		s       = xmlscan.New(p)
		row     []string
		next    int // column of the next cell without a reference
		number  int // of the row in the sheet, from 1
		col     int
		style   int
		kind    byte
		value   []byte
		in      bool // inside a value's text
		formula bool // the cell has one
		inside  bool // its text
		code    []byte
		inData  bool
		held    [][]string // rows waiting for the merged cells, nil once abandoned
		numbers []int
		cells   int
		bytes   int
		hold    = true
		merges  []merge
		seen    int
		mixed   bool   // rows or cells are out of order
		marks   []mark // cells to be formatted by the library
	)
	release := func() error {
		if len(marks) > 0 && !mixed {
			w.looks.apply(ctx, held, marks)
		}
		for _, m := range merges {
			fill(held, numbers, m)
		}
		for i, r := range held {
			if err := on(numbers[i], r); err != nil {
				return err
			}
		}
		held, marks, hold = nil, nil, false
		return nil
	}
	for {
		k, err := s.Next()
		if err != nil {
			e := damaged(sh.part, err)
			if f, ok := errors.AsType[*sheaf.Failure](e); ok && f.Code == "invalid_xlsx" {
				if err := release(); err != nil { // what precedes the damage
					return err
				}
			}
			return e
		}
		switch k {
		case xmlscan.EOF:
			if err := release(); err != nil || !inData {
				return err
			}
			return zipfile.Invalid("xlsx", "its sheet %q ends inside a row", sh.name)
		case xmlscan.Start:
			switch string(s.Name()) {
			case "sheetData":
				inData = true
			case "row":
				if !inData {
					continue
				}
				row, next = nil, 0
				number++
				if v, err := strconv.Atoi(string(s.AttrBytes("r"))); err == nil {
					mixed = mixed || v < number
					number = max(number, v)
				}
			case "c":
				if !inData {
					continue
				}
				if col = column(s.AttrBytes("r")); col < 0 {
					col = next
				}
				kind, value, formula, code = 'n', value[:0], false, code[:0]
				if t := s.AttrBytes("t"); len(t) > 0 {
					switch string(t) {
					case "inlineStr":
						kind = 'i'
					case "str":
						kind = 'f'
					default:
						kind = t[0]
					}
				}
				style, _ = strconv.Atoi(string(s.AttrBytes("s")))
			case "v", "t":
				in = inData
			case "f":
				formula, inside = formula || inData, inData
			case "rPh":
				if err := s.Skip(); err != nil {
					return damaged(sh.part, err)
				}
			case "hyperlink": // these follow the rows
				if to := w.z.Rels(sh.part)[s.RelID()]; hold {
					links.area(s.Attr("ref"), to)
				} else if to.External {
					links.lost++
				}
			case "mergeCell":
				if m, ok := area(string(s.AttrBytes("ref"))); ok && len(merges) < 100_000 {
					merges = append(merges, m)
				}
			}
		case xmlscan.Text:
			if in && len(value) < rowio.MaxCellBytes {
				value = append(value, s.Text()...)
			} else if inside && len(code) < maxFormula {
				code = append(code, s.Text()...)
			}
		case xmlscan.End:
			switch string(s.Name()) {
			case "v", "t":
				in = false
			case "f":
				inside = false
			case "c":
				if inData && len(code) > 0 {
					links.add(number, addressIn(string(code)))
				}
				if !inData || col >= rowio.MaxColumns {
					continue
				}
				mixed = mixed || col < len(row)
				next = col + 1
				if formula && len(value) == 0 && kind == 'n' {
					w.unsolved[sh.part]++
				}
				if text := w.show(kind, value, style); text != "" {
					text = clean.Clip(text, maxCellBytes)
					bytes += len(text)
					w.text += int64(len(text))
					for len(row) < col {
						row = append(row, "")
						w.text++ // an empty cell before it takes memory too
					}
					if w.text > freeTextBytes && w.text/maxTextRatio > w.z.Read() {
						return sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "The workbook shows far more text and cells than an honest file of its size holds; it was stopped after %d MB. Check where the file comes from.", w.text>>20)
					}
					if w.looks != nil && hold && kind == 'n' && w.format(style) == special {
						bytes += len(value)
						marks = append(marks, mark{len(held), col, w.looks.ask(style, value)})
					}
					if len(row) == col {
						row = append(row, text)
					} else {
						row[col] = text
					}
				}
			case "row":
				if len(row) == 0 {
					continue
				}
				seen++
				if seen&0x3ff == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if !hold {
					if err := on(number, row); err != nil {
						return err
					}
				} else {
					held, numbers = append(held, row), append(numbers, number)
					if cells += len(row); len(held) > bufferedRows || cells > maxBufferedCells || bytes > maxBufferedBytes {
						mixed = true // a sheet this large is streamed
						if err := release(); err != nil {
							return err
						}
					}
				}
				row = nil
			case "sheetData":
				inData = false
			}
		}
	}
}

// show returns the text of a cell.
func (w *workbook) show(kind byte, value []byte, style int) string {
	switch kind {
	case 's':
		i, err := strconv.Atoi(strings.TrimSpace(string(value)))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(clean.Text(unescape(w.strings.get(i))))
	case 'b':
		if string(value) == "1" {
			return "TRUE"
		}
		return "FALSE"
	case 'n':
		if len(value) == 0 {
			return ""
		}
		return clean.Text(w.number(value, style))
	case 'd': // ISO 8601, as stored
		return strings.TrimSpace(clean.Text(string(value)))
	}
	return strings.TrimSpace(clean.Text(unescape(string(value))))
}

// unescape resolves _x000D_, by which Excel stores characters not allowed in XML.
func unescape(s string) string {
	if !strings.Contains(s, "_x") {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n") // as XML reads a line end: one following _x000D_ is not a second one
	var b strings.Builder
	for {
		i := strings.Index(s, "_x")
		if i < 0 || i+7 > len(s) {
			b.WriteString(s)
			return b.String()
		}
		v, err := strconv.ParseUint(s[i+2:i+6], 16, 16)
		if err != nil || s[i+6] != '_' {
			b.WriteString(s[:i+2])
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		b.WriteRune(rune(v))
		s = s[i+7:]
	}
}

func area(ref string) (m merge, ok bool) {
	a, b, two := strings.Cut(ref, ":")
	if !two {
		return m, false
	}
	m.c0, m.r0 = column([]byte(a)), rowOf(a)
	m.c1, m.r1 = column([]byte(b)), rowOf(b)
	return m, m.c0 >= 0 && m.r0 > 0 && m.c1 >= m.c0 && m.r1 >= m.r0
}

func rowOf(ref string) int {
	v, err := strconv.Atoi(strings.TrimLeft(ref, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz$"))
	if err != nil {
		return 0
	}
	return v
}

// fill repeats the text of a merged cell down its rows, since a row is read alone.
// Across, it would only repeat within one row.
func fill(rows [][]string, numbers []int, m merge) {
	// The rows are sorted: find the first of the area.
	lo, hi := 0, len(numbers)
	for lo < hi {
		if mid := (lo + hi) / 2; numbers[mid] < m.r0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(rows) || numbers[lo] != m.r0 || m.c0 >= len(rows[lo]) {
		return
	}
	text := rows[lo][m.c0]
	if text == "" || len(text) > 1000 {
		return
	}
	for i := lo + 1; i < len(rows) && numbers[i] <= m.r1; i++ {
		for len(rows[i]) <= m.c0 {
			rows[i] = append(rows[i], "")
		}
		if rows[i][m.c0] == "" {
			rows[i][m.c0] = text
		}
	}
}
