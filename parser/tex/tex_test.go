package tex

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry { return parser.NewRegistry(New(registry), text.New()) }

var options = parser.Options{Name: "document.tex", MediaType: "text/x-tex"}

const sample = `\documentclass[11pt]{article}
\usepackage[utf8]{inputenc} % packages say nothing
\newcommand{\quince}[1]{\emph{#1}}
\title{On Quinces\thanks{Paid by the Crown.}}
\author{Ada Byrne \and Bj\"orn Sj\"{o}str\"om}
\begin{document}
\maketitle
\begin{abstract}
We count quinces --- ` + "``all''" + ` of them.
\end{abstract}
\section[short]{Method \& means}\label{sec:m}
Trees were counted twice~\cite[p.~3]{old99,new01}, see Section~\ref{sec:m}.\footnote{By \emph{hand}.}
100\% sure. % not so
The mean is $\bar x = \frac{1}{n}\sum x_i$ here.

A new paragraph with \textbf{bold \textit{words}} and \verb|x_{%}|; na\"{\i}ve caf\'e, \v{S}koda, \ss.
\[ E = mc^2 \]
\begin{align}
a &= b \\ c &= d
\end{align}
\subsection{Lists}
\begin{itemize}
  \item one
  \begin{enumerate} \item inner, \item second \end{enumerate}
  \item[Two] with a label
\end{itemize}
\begin{table}[ht]
\caption{Yield}\label{t}
\begin{tabular}{l|rr}
\toprule
Plot & \multicolumn{2}{c}{Tons} \\ \cmidrule(lr){2-3}
 & wet & dry \\ \midrule
A & 12 & 7 \\
\multirow{2}{*}{B} & 3\,000 & 4 \\
 & 5 & \$6 \\ \bottomrule
\end{tabular}
\end{table}
\begin{figure}\includegraphics[width=3cm]{a.png}\caption{An orchard \href{http://example.org}{here}.}\end{figure}
\begin{lstlisting}[language=Python]
def f(x):
    return x % 2  # {
\end{lstlisting}
\begin{quote}Fruit is good.\end{quote}
\input{chapter2}
\iffalse never shown \fi
\begin{thebibliography}{9}
\bibitem{old99} Old, \emph{Fruit}, 1999.
\end{thebibliography}
\end{document}
after the end`

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), []byte(sample), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

// show is what was read, a block a line.
func show(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		for _, k := range u.Blocks {
			b.WriteString(string(k.Kind) + ": " + k.Text)
			if k.Table != nil {
				b.WriteString(strings.Join(k.Table.Columns, "|"))
				for _, r := range k.Table.Rows {
					b.WriteString("/" + strings.Join(r, "|"))
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestPiecesWithoutADocument(t *testing.T) {
	for source, want := range map[string]string{
		`\chapter{One} text \section{Two}`:            "heading: One\nparagraph: text\nheading: Two\n",
		`a \section{cut off`:                          "paragraph: a cut off\n",
		`\def\x#1{hidden} shown \let\y=\x` + "\nmore": "paragraph: shown more\n",
		`price \$5, 50\%, a\_b, \{c\}`:                "paragraph: price $5, 50%, a_b, {c}\n",
		`costs $5 and no more`:                        "paragraph: costs $5 and no more\n",
		`\begin{verbatim}\section{no}`:                "code: \\section{no}\n",
		`\begin{longtable}{ll}\caption{C}\\ A & B \\ \hline \endfirsthead A & B \\ \endhead foot \\ \endfoot 1 & 2 \\ \end{longtable}`: "table: A|B/1|2\n",
		`\begin{tabular}{l}a \begin{tabular}{l}x & y \\ z\end{tabular} & b \\ c & d\end{tabular}`:                                      "table: /a x | y z|b/c|d\n",
		`\textcolor{red}{seen} \resizebox{1cm}{!}{also} \url{http://a.b/%20}`:                                                          "paragraph: seen also http://a.b/%20\n",
		"one\\\\two%\n   three": "paragraph: one\ntwothree\n",
		`\item bare`:            "list_item: bare\n",
		`\footnote{only this}`:  "footnote: only this\n",
	} {
		_, units, err := formattest.Read(t, New(registry), []byte(source), options, nil)
		if got := show(units); err != nil || got != want {
			t.Errorf("%s\n got %q\nwant %q (%v)", source, got, want, err)
		}
	}
}

func TestIncludedFilesAreNotFollowed(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), []byte(`a \input{/etc/passwd} \include{b}\input c`), options, nil)
	if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "inputs_ignored" || !strings.Contains(plan.Warnings[0].Message, "(3)") || strings.Contains(show(units), "root") {
		t.Errorf("%+v %q %v", plan, show(units), err)
	}
}

func TestEmptySourcesHaveNoText(t *testing.T) {
	_, _, err := formattest.Read(t, New(registry), nil, options, nil)
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "empty_file" {
		t.Errorf("%v", err)
	}
	_, units, err := formattest.Read(t, New(registry), []byte(`% nothing`), options, nil)
	if err != nil || units[0].Status != sheaf.UnitBlank {
		t.Errorf("%+v %v", units, err)
	}
}

func TestHostileSourcesEndSoon(t *testing.T) {
	start := time.Now()
	for _, piece := range []string{`\section{`, `{`, `}`, `\[`, `$`, `$$`, `\begin{itemize}`, `\begin{equation}`, `\begin{tabular}{l}`, `\footnote{`, `\item[`, `\def`, `%`, "\n\n", `\verb|`, `\cite[`, `\multicolumn{999999999}{c}{x}&`, `\caption{`, `\begin{`, `\"`, `\iffalse`} {
		if _, _, err := formattest.Read(t, New(registry), []byte(strings.Repeat(piece, 20_000)), options, nil); err != nil {
			t.Errorf("%s: %v", piece, err)
		}
		closed := strings.Repeat(piece, 300) + strings.Repeat("x}", 300)
		if _, _, err := formattest.Read(t, New(registry), []byte(closed), options, nil); err != nil {
			t.Errorf("%s: %v", piece, err)
		}
	}
	if d := time.Since(start); d > time.Minute { // a second, where nothing grows with the square
		t.Errorf("%v", d)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample))
	for _, s := range []string{`\"{o}\'e\v s`, `$a$ $$b$$ \[c\] \(d\)`, `\begin{tabular}{l}\multirow{2}{*}{x}&\\\end{tabular}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
