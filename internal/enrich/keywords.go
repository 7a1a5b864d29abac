package enrich

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Keywords finds up to n keywords in each text with RAKE (Rose, Engel, Cramer and
// Cowley 2010): runs of words between stop words and punctuation, scored by the
// number of words their own words co-occur with, times how rare the run is among
// the texts. Chinese, Japanese and Korean, written without spaces, yield character
// pairs by TF-IDF. languages are ISO 639-1, one per text; for a language without a
// stop word list all lists apply. The error is ctx's.
func Keywords(ctx context.Context, texts, languages []string, n int) ([][]string, error) {
	candidates := make([][]string, len(texts))
	texted := map[string]int{} // number of texts it occurs in
	for i, text := range texts {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		candidates[i] = phrases(text, languages[i])
		for _, p := range slices.Compact(slices.Sorted(slices.Values(candidates[i]))) {
			texted[p]++
		}
	}
	out := make([][]string, len(texts))
	for i, list := range candidates {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		frequency, degree := map[string]float64{}, map[string]float64{}
		for _, p := range list {
			words := strings.Fields(p)
			for _, w := range words {
				frequency[w]++
				degree[w] += float64(len(words))
			}
		}
		score, place := map[string]float64{}, map[string]int{}
		for at, p := range list {
			if _, seen := place[p]; !seen {
				place[p] = at
			}
			sum := 0.0
			for w := range strings.FieldsSeq(p) {
				sum += degree[w] / frequency[w]
			}
			// what occurs in every text does not characterize this one
			score[p] += sum * math.Log(1+float64(len(texts))/float64(texted[p]))
		}
		keys := make([]string, 0, len(score))
		for p := range score {
			keys = append(keys, p)
		}
		slices.SortFunc(keys, func(a, b string) int {
			return cmp.Or(cmp.Compare(score[b], score[a]), cmp.Compare(place[a], place[b]))
		})
		out[i] = keys[:min(n, len(keys))]
	}
	return out, nil
}

const maxPhraseWords = 4

// phrases lists the candidates of a text, in order, in lower case.
func phrases(text, language string) []string {
	stop, known := stopWords[language]
	if !known {
		stop = allStopWords
	}
	var out, run []string
	flush := func() {
		if len(run) > 0 && len(run) <= maxPhraseWords {
			out = append(out, strings.Join(run, " "))
		}
		run = nil
	}
	var word strings.Builder
	var before rune // in a script without spaces
	end := func() {
		w := strings.Trim(word.String(), "'-")
		word.Reset()
		if w == "" {
			return
		}
		if stop[w] || len([]rune(w)) < 3 || strings.Trim(w, "0123456789.") == "" {
			flush()
			return
		}
		run = append(run, w)
	}
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			end()
			flush()
			if before != 0 && !unicode.Is(unicode.Hiragana, r) && !unicode.Is(unicode.Hiragana, before) && !strings.ContainsRune(stopCharacters, r) && !strings.ContainsRune(stopCharacters, before) {
				out = append(out, string([]rune{before, r}))
			}
			before = r
			continue
		case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsDigit(r), r == '-', r == '\'', r == '’':
			word.WriteRune(r)
		case r == ' ':
			end()
		default:
			end()
			flush()
		}
		before = 0
	}
	end()
	flush()
	return out
}

const stopCharacters = "的了是在和有我不这个一上也到就说要你他们以与及其中为之而于对将被把着都很"

var stopWords = map[string]map[string]bool{
	"en": list("a about above after again all also am an and any are as at be because been before being below between both but by can could did do does doing down during each few for from further had has have having he her here hers him his how i if in into is it its just may me might more most must my no nor not now of off on once only or other our out over own same shall she should so some such than that the their them then there these they this those through to too under until up upon us very was we were what when where which while who whom why will with would you your one two within without however therefore thus"),
	"de": list("aber alle als also am an auch auf aus bei bin bis bist da damit dann das dass daß dein dem den denn der des dessen die dies diese dieser dieses doch dort du durch ein eine einem einen einer eines er es für hat hatte hatten hier hinter ich ihr ihre im in ist ja jede jeder jedes kann kein keine können man mehr mein mit nach nicht noch nun nur ob oder ohne sehr sein seine sich sie sind so soll sondern über um und uns unser unter vom von vor war waren was weil welche wenn werden wer wie wieder wir wird wo wurde wurden zu zum zur zwischen"),
	"fr": list("alors au aucun aussi autre aux avant avec avoir car ce cela ces cet cette ceux chaque comme dans de des depuis deux donc du elle elles en encore entre est et eu fait faire il ils je la le les leur leurs lui mais mes moins mon même ne nos notre nous on ont ou où par pas plus pour pourquoi qu que quel quelle qui sa sans se ses si son sont sous sur ta tes ton tous tout toute très tu un une vos votre vous été être était"),
	"es": list("a al algo ante antes aquel aquella como con contra cual cuando de del desde donde durante e el ella ellas ellos en entre era es esa ese eso esta estaba estas este esto estos está fue ha han hasta hay la las le les lo los mas más me mi mientras muy nada ni no nos o otra otro otros para pero por porque que quien se según ser si sido sin sobre son su sus también tanto te tiene todo todos tu un una uno y ya"),
	"it": list("a ad agli ai al alla alle allo anche che chi ci come con contro cui da dagli dai dal dalla dalle degli dei del della delle dello di dove e ed era essere fra fu gli ha hanno i il in io la le lei lo loro lui ma mi mio ne nei nel nella nelle noi non nostro o ogni per perché più quale quando quello questa questo se sei si sia sono su sua sue sugli sul sulla suo tra tu un una uno è"),
	"pt": list("a ao aos as até com como da das de dela dele depois do dos e ela elas ele eles em entre era essa esse esta este eu foi foram há isso isto já lhe mais mas me mesmo meu minha muito na nas nem no nos nossa nosso não o os ou para pela pelas pelo pelos por qual quando que quem se sem ser seu seus sua suas são só também te tem um uma umas uns você é"),
	"nl": list("aan als altijd ben bij daar dan dat de den der deze die dit doch doen door dus een en er ge geen haar had heb hebben heeft hem het hier hij hoe hun ik in is ja je kan maar me meer men met mij mijn na naar niet nog nu of om omdat ons ook op over te tegen toch toen tot uit uw van veel voor want was wat we wel werd wij wil worden wordt zal ze zich zij zijn zo zonder zou"),
}

var allStopWords = func() map[string]bool {
	all := map[string]bool{}
	for _, l := range stopWords {
		for w := range l {
			all[w] = true
		}
	}
	return all
}()

// IsStopWord reports whether a lower-case word is a stop word of a language (ISO
// 639-1), or, if there is no list for that, of any.
func IsStopWord(word, language string) bool {
	if stop, known := stopWords[language]; known {
		return stop[word]
	}
	return allStopWords[word]
}

func list(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}
