package chunker

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An outline detects a heading at the start of a trimmed line: its level from 1 and
// how many bytes of the line it takes, or 0. alone reports that the line is a
// paragraph by itself.
type outline func(line string, alone bool) (level, n int)

// maxTitle is the longest line, in bytes, that counts as a heading as a whole.
const maxTitle = 100

const (
	number  = `(?:[IVXLCDMivxlcdm]+|\d+[a-z]?|[A-Z])`
	chinese = `第\s*[零〇一二三四五六七八九十百千两0-9]+\s*`
)

// law gives the words for the divisions of a law, outermost first, in English,
// German, French, Spanish, Italian, Portuguese and Chinese.
var law = []*regexp.Regexp{
	regexp.MustCompile(`^(?:(?i:part|title|book|teil|buch|titel|partie|titre|livre|parte|título|libro)\s+` + number + `|` + chinese + `[编編篇])(?:[.:)]|$|\s)`),
	regexp.MustCompile(`^(?:(?i:chapter|kapitel|chapitre|capítulo|capitolo)\s+` + number + `|` + chinese + `章)(?:[.:)]|$|\s)`),
	regexp.MustCompile(`^(?:(?i:section|abschnitt|sección|sezione|seção)\s+` + number + `|` + chinese + `[节節])(?:[.:)]|$|\s)`),
	regexp.MustCompile(`^(?:(?i:article|artikel|artículo|articolo|artigo|art\.|rule|clause)\s*` + number + `|§+\s*\d+[a-z]?|` + chinese + `[条條])(?:[.:)]|$|\s)`),
}

// articles finds the divisions of laws and contracts.
func articles(line string, _ bool) (level, n int) {
	for i, re := range law {
		m := re.FindStringIndex(line)
		if m == nil {
			continue
		}
		rest := strings.TrimSpace(line[m[1]:])
		if r, _ := utf8.DecodeRuneInString(rest); rest != "" && unicode.IsLower(r) && !strings.ContainsAny(line[m[0]:m[1]], ".:)条條章节節编編篇") {
			return 0, 0 // "Article 5 of the Treaty" in running text
		}
		if len(line) <= maxTitle && !strings.HasSuffix(line, ",") && !strings.HasSuffix(line, ";") && !endsSentence(line) {
			return i + 1, len(line)
		}
		return i + 1, len(strings.TrimRight(line[:m[1]], " \t"))
	}
	return 0, 0
}

// endsSentence reports whether the line is prose: longer than a number, and ending
// in a full stop.
func endsSentence(line string) bool {
	return len(line) > 20 && (strings.HasSuffix(line, ".") || strings.HasSuffix(line, "。"))
}

var (
	numberedLine = regexp.MustCompile(`^(\d{1,2}(?:\.\d{1,2}){0,4})[.)]?\s+\p{L}`)
	romanLine    = regexp.MustCompile(`^[IVX]{1,5}\.\s+\p{Lu}`)
)

// numbered finds "1 Introduction" and "2.3.1 Disk layout".
func numbered(line string, alone bool) (level, n int) {
	m := numberedLine.FindStringSubmatch(line)
	if m == nil || !alone || len(line) > maxTitle || strings.ContainsAny(line[len(line)-1:], ".,;:") {
		return 0, 0
	}
	if title := strings.TrimLeft(line[len(m[1]):], ".) \t"); title == "" || unicode.IsLower([]rune(title)[0]) {
		return 0, 0
	}
	return 1 + strings.Count(m[1], "."), len(line)
}

// named returns an outline that matches lines consisting of one of the titles,
// given in lower case, alone or followed by a dash or colon.
func named(level int, titles map[string]bool) outline {
	return func(line string, _ bool) (int, int) {
		if title := strings.ToLower(strings.TrimRight(line, " .:—–-")); len(line) <= 60 && titles[title] {
			return level, len(line)
		}
		return 0, 0
	}
}

func words(list string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.SplitSeq(list, ",") {
		m[strings.Join(strings.Fields(w), " ")] = true
	}
	return m
}

var (
	abstracts    = words("abstract, summary, zusammenfassung, kurzfassung, résumé, resumen, resumo, riassunto, 摘要, 要旨")
	paperTitles  = named(1, words("abstract, introduction, related work, background, methods, method, materials and methods, results, discussion, conclusion, conclusions, acknowledgements, acknowledgments, references, bibliography, appendix, zusammenfassung, einleitung, literatur, résumé, références, resumen, introducción, referencias, 摘要, 引言, 结论, 参考文献"))
	abstractLine = regexp.MustCompile(`^(?:Abstract|ABSTRACT|Zusammenfassung|Résumé|Resumen)\s?[—–.:-]\s*`)
)

// paperSections finds numbered sections and the usual sections of a paper.
func paperSections(line string, alone bool) (level, n int) {
	if level, n = paperTitles(line, alone); level > 0 {
		return level, n
	}
	if m := abstractLine.FindStringIndex(line); m != nil {
		return 1, len(strings.TrimRight(line[:m[1]], " \t"))
	}
	if alone && len(line) <= maxTitle && romanLine.MatchString(line) && !strings.HasSuffix(line, ".") {
		return 1, len(line)
	}
	return numbered(line, alone)
}

func isAbstract(heading string) bool {
	heading = strings.TrimLeft(strings.ToLower(heading), "0123456789. ")
	return abstracts[strings.TrimRight(heading, " .:—–-")]
}

var (
	partLine    = regexp.MustCompile(`^(?:(?i:part|book|teil|buch|partie|livre|parte|libro)\s+(?:` + number + `|(?i:one|two|three|four|five|six|seven|eight|nine|ten))|` + chinese + `[部卷编編])(?:[.:]|$|\s)`)
	chapterLine = regexp.MustCompile(`^(?:(?i:chapter|kapitel|chapitre|capítulo|capitolo|appendix|anhang|annexe)\s+(?:` + number + `|(?i:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty))|` + chinese + `[章回])(?:[.:]|$|\s)`)
	bookTitles  = named(2, words("preface, foreword, prologue, epilogue, introduction, afterword, index, bibliography, glossary, vorwort, einleitung, nachwort, préface, prólogo, epílogo, 前言, 序, 序言, 后记, 目录"))

	contentsTitles = words("contents, table of contents, inhalt, inhaltsverzeichnis, sommaire, table des matières, índice, contenido, indice, sumário, 目录, 目次")
	contentsLine   = regexp.MustCompile(`(?:\.{3,}|…|(?:\s\.){3,}|·{3,}|\t|\s{3,})\s*(?:\d{1,4}|[ivxlc]{1,7})$`)
)

// chapters finds the parts and chapters of a book.
func chapters(line string, alone bool) (level, n int) {
	if level, n = bookTitles(line, alone); level > 0 {
		return level, n
	}
	if len(line) > maxTitle || endsSentence(line) || strings.HasSuffix(line, ",") {
		return 0, 0
	}
	for i, re := range []*regexp.Regexp{partLine, chapterLine} {
		if m := re.FindStringIndex(line); m != nil {
			rest := strings.TrimSpace(line[m[1]:])
			if r, _ := utf8.DecodeRuneInString(rest); rest != "" && unicode.IsLower(r) {
				return 0, 0
			}
			return i + 1, len(line)
		}
	}
	if level, n = numbered(line, alone); level > 1 {
		return level + 1, n
	}
	return 0, 0
}

// resumeSections finds the usual sections of a résumé.
var resumeSections = named(2, words(`profile, summary, objective, about me, experience, work experience, professional experience, employment, employment history,
	education, skills, technical skills, languages, projects, publications, certifications, certificates, awards, honors, interests, hobbies, references, contact, volunteering, training,
	profil, berufserfahrung, ausbildung, kenntnisse, fähigkeiten, sprachen, projekte, interessen, expérience, expérience professionnelle, formation, compétences, langues,
	experiencia, experiencia laboral, educación, habilidades, idiomas, 个人信息, 教育背景, 教育经历, 工作经历, 工作经验, 项目经历, 项目经验, 专业技能, 技能, 自我评价`))

var questionLine = regexp.MustCompile(`^(?:Q(?:uestion)?\s?\d*\s?[.:)]|Frage\s?\d*\s?:|Pregunta\s?\d*\s?:|问\s?\d*[:：]|问题\s?\d*[:：])\s*\S`)

// questions finds lines that begin with "Q:".
func questions(line string, _ bool) (level, n int) {
	if questionLine.MatchString(line) && len(line) <= titleMaxBytes {
		return 6, len(line)
	}
	return 0, 0
}
