package search

import (
	"bytes"
	"strings"

	"sheaf/internal/index"
)

// "How much did the margin grow" is answered by a statement, a table of
// figures that shares few words with the question, while the text around it
// shares many. So where a query asks for figures, pages that consist of them
// rank higher. A bare year does not ask for any: it is in most names.

// quantities are words of questions for figures, in the languages that Sheaf's
// own model knows best.
var quantities = func() map[string]bool {
	m := make(map[string]bool)
	for _, t := range index.Terms(`
		much many ratio rate percent percentage average mean total sum amount number count growth grow grew grown increase increased
		decrease decreased decline declined change changed drop dropped rise rose highest lowest largest smallest biggest most least
		fewer margin price cost value million billion dollar euro calculate compute profit loss quarter fiscal
		wieviel viel viele hoch anteil quote prozent durchschnitt summe gesamt betrag anzahl zahl wachstum gewachsen anstieg gestiegen
		rückgang gesunken veränderung höchste niedrigste größte kleinste marge preis kosten wert millionen milliarden gewinn verlust quartal
		combien taux pourcentage moyenne somme montant nombre croissance augmentation augmenté baisse hausse diminution marge prix coût
		valeur millions milliards bénéfice perte trimestre
		cuánto cuánta cuántos cuántas tasa porcentaje promedio suma importe monto número crecimiento aumento disminución margen precio
		costo coste valor millones beneficio pérdida`) {
		m[t.Text] = true
	}
	return m
}()

// asksForFigures tells how far a query asks for a quantity, 0 to 1: by a word or
// a sign such as % or $ it does; a period such as FY2022 or Q3 is a hint.
func asksForFigures(query string) float64 {
	if strings.ContainsAny(query, "%$€£¥") {
		return 1
	}
	asks := 0.0
	for _, t := range index.Terms(query) {
		if quantities[t.Text] {
			return 1
		}
		if isPeriod(t.Text) {
			asks = periodAsks
		}
	}
	return asks
}

// periodAsks is how far a period alone asks for figures.
const periodAsks = 0.5

// isPeriod reports whether a term is a fiscal year or a quarter: fy22, q3, 3q.
func isPeriod(term string) bool {
	digits := strings.Trim(term, "fyq")
	switch around := strings.Replace(term, digits, "", 1); {
	case digits == "" || strings.Trim(digits, "0123456789") != "":
		return false
	default:
		return around == "fy" || around == "q"
	}
}

// mostFigures is the share of figures among the terms of a page that has nothing
// else but labels.
const mostFigures = 0.5

// figures is how much of a text, as terms with a space behind each, is numbers,
// 0 to 1.
func figures(terms []byte) float64 {
	all, numbers := 0, 0
	for len(terms) > 0 {
		all++
		if '0' <= terms[0] && terms[0] <= '9' {
			numbers++
		}
		terms = terms[bytes.IndexByte(terms, ' ')+1:]
	}
	return min(1, float64(numbers)/float64(max(1, all))/mostFigures)
}
