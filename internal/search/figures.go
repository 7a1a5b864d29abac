package search

import (
	"bytes"
	"strings"

	"sheaf/internal/index"
)

// "How much did the margin grow" is answered by a statement: a table of figures
// that shares few words with the question, while the surrounding text shares many.
// So pages of figures rank higher when a query asks for figures. A bare year does
// not count, since most names contain one.

// quantities are words of questions about figures, in the languages that Sheaf's
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

// asksForFigures rates from 0 to 1 how far a query asks for a quantity. A word or a
// sign such as % or $ does; a period such as FY2022 or Q3 is a hint.
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

// periodAsks is the rating of a period alone.
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

// mostFigures is the share of figures among the terms of a page that otherwise has
// only labels.
const mostFigures = 0.5

// figures rates from 0 to 1 how much of a text is numbers; terms are each followed
// by a space.
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
