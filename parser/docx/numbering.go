package docx

import (
	"strconv"
	"strings"
	"unicode"

	"sheaf/parser/internal/shown"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

// Word stores how paragraphs are numbered, not their numbers (ISO/IEC 29500-1,
// 17.9): "4.2" and "Article 5" are counted here, as Word does.

// Limits on definitions.
const (
	maxLevels     = 9
	maxLists      = 20_000
	maxLabelBytes = 100 // of a level's text, before the numbers are put in
	maxCount      = 1 << 30
)

// level is one level of a list.
type level struct {
	start   int
	format  string
	text    string // "%1.%2": the numbers of the levels, counted from 1
	style   string // of the paragraphs that are on this level, "" for any
	restart int    // the level, from 1, after which this one starts anew; -1 for each above, 0 for none
	legal   bool   // all numbers are decimal
	set     bool
}

// list is the definition of a list. Its instances count together.
type list struct {
	levels [maxLevels]level
	link   string // the style that holds the definition, "" if it is here
	counts [maxLevels]int
	begun  [maxLevels]bool
}

// instance is a use of a list, which can start anew and change levels.
type instance struct {
	list    string
	starts  [maxLevels]int // -1 for none
	changed [maxLevels]level
	used    bool
}

// numbering counts the numbered paragraphs of a document.
type numbering struct {
	lists     map[string]*list
	instances map[string]*instance
	styles    map[string]style
}

func readNumbering(z *zipfile.Archive, name string, styles map[string]style) *numbering {
	n := &numbering{lists: map[string]*list{}, instances: map[string]*instance{}, styles: styles}
	p, err := z.Part(name, zipfile.MaxPartBytes)
	if err != nil {
		return n
	}
	defer p.Close()
	var in *list
	var of *instance
	var at *level
	overridden := 0 // level of the override that at is in
	for s := xmlscan.New(p); len(n.lists)+len(n.instances) < maxLists; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			break
		}
		if k != xmlscan.Start {
			if k == xmlscan.End && string(s.Name()) == "lvl" {
				at = nil
			}
			continue
		}
		value := func() int {
			v, err := strconv.Atoi(s.Attr("val"))
			if err != nil || v < -maxCount || v > maxCount {
				return 1
			}
			return v
		}
		switch string(s.Name()) {
		case "abstractNum":
			in, of, at = &list{}, nil, nil
			n.lists[s.Attr("abstractNumId")] = in
		case "numStyleLink":
			if in != nil {
				in.link = s.Attr("val")
			}
		case "num":
			of, in, at = &instance{}, nil, nil
			for i := range of.starts {
				of.starts[i] = -1
			}
			n.instances[s.Attr("numId")] = of
		case "abstractNumId":
			if of != nil {
				of.list = s.Attr("val")
			}
		case "lvlOverride", "lvl":
			i, err := strconv.Atoi(s.Attr("ilvl"))
			if err != nil || i < 0 || i >= maxLevels {
				continue
			}
			if string(s.Name()) == "lvlOverride" {
				if at = nil; of != nil {
					at, overridden = &of.changed[i], i
				}
				continue
			}
			switch {
			case in != nil:
				at = &in.levels[i]
			case of != nil:
				at = &of.changed[i]
			default:
				continue
			}
			*at = level{start: 0, restart: -1, set: true}
		case "startOverride":
			if of != nil && at != nil {
				of.starts[overridden] = value()
			}
		case "start":
			if at != nil {
				at.start = value()
			}
		case "numFmt":
			if at != nil && at.format == "" { // a later one is the fallback of another program's
				at.format = s.Attr("val")
			}
		case "lvlText":
			if v := s.Attr("val"); at != nil && len(v) <= maxLabelBytes {
				at.text = v
			}
		case "pStyle":
			if at != nil {
				at.style = s.Attr("val")
			}
		case "lvlRestart":
			if at != nil {
				at.restart = value()
			}
		case "isLgl":
			if at != nil {
				v := s.Attr("val")
				at.legal = v != "0" && v != "false"
			}
		}
	}
	return n
}

// find returns an instance with its list, which may be defined by a style.
func (n *numbering) find(id string) (*instance, *list) {
	of := n.instances[id]
	if of == nil {
		return nil, nil
	}
	l := n.lists[of.list]
	if l != nil && l.link != "" {
		if via := n.instances[n.styles[l.link].num]; via != nil {
			l = n.lists[via.list]
		}
	}
	return of, l
}

// label counts a paragraph and returns what Word shows before it, "" for nothing and
// for a bullet. at is its level from 0, or -1 to take that of its style.
func (n *numbering) label(id string, at int, style string, fallback int) string {
	if n == nil || id == "" || id == "0" {
		return ""
	}
	of, l := n.find(id)
	if l == nil {
		return ""
	}
	if at < 0 {
		at = fallback
		for i := range l.levels {
			if style != "" && l.levels[i].style == style {
				at = i
			}
		}
	}
	if at < 0 || at >= maxLevels {
		return ""
	}
	level := func(i int) *level {
		if of.changed[i].set {
			return &of.changed[i]
		}
		return &l.levels[i]
	}
	if !of.used {
		of.used = true
		for i, start := range of.starts {
			if start >= 0 {
				l.counts[i], l.begun[i] = start-1, true
			}
		}
	}
	if l.begun[at] {
		l.counts[at] = min(l.counts[at]+1, maxCount)
	} else {
		l.counts[at], l.begun[at] = level(at).start, true
	}
	for i := at + 1; i < maxLevels; i++ {
		if r := level(i).restart; r < 0 || at+1 <= r {
			l.begun[i] = false
		}
	}
	return l.shown(level, at)
}

// shown returns the label of a paragraph that was counted on level at.
func (l *list) shown(level func(int) *level, at int) string {
	here := level(at)
	if here.format == "bullet" {
		return ""
	}
	var b strings.Builder
	counted := false
	for text := here.text; text != ""; {
		if text[0] == '%' && len(text) > 1 && text[1] >= '1' && text[1] <= '9' {
			i := int(text[1] - '1')
			format, count := level(i).format, l.counts[i]
			if !l.begun[i] {
				count = level(i).start
			}
			if here.legal && format != "none" {
				format = "decimal"
			}
			b.WriteString(shown.Number(format, count))
			text, counted = text[2:], true
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	label := strings.Join(strings.Fields(b.String()), " ")
	if !counted || !strings.ContainsFunc(label, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
		return ""
	}
	return label
}
