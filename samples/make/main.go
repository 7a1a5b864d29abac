// Command make writes the sample documents from samples/handbook.md, a frozen copy
// of the handbook. Run it in the root of the repository; the same text produces the
// same bytes.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

func main() {
	if err := run("samples/handbook.md", "samples"); err != nil {
		fmt.Fprintln(os.Stderr, "make:", err)
		os.Exit(1)
	}
}

func run(source, dir string) error {
	md, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	files, err := render(md)
	if err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render makes every sample from the handbook's Markdown.
func render(md []byte) (map[string][]byte, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table))
	blocks, err := read(markdown, md)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, write := range map[string]func([]block) ([]byte, error){
		"handbook.pdf": writePDF, "handbook.docx": writeDOCX, "handbook.xlsx": writeXLSX,
	} {
		if files[name], err = write(blocks); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	var page bytes.Buffer
	page.WriteString("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" + blocks[0].text + "</title>\n</head>\n<body>\n")
	if err := markdown.Convert(md, &page); err != nil {
		return nil, err
	}
	page.WriteString("</body>\n</html>\n")
	files["handbook.html"] = page.Bytes()
	return files, nil
}

type kind int

const (
	paragraph kind = iota
	title          // a heading; level gives its level
	code
	table
)

// A block is an element of the handbook.
type block struct {
	kind  kind
	level int
	text  string
	rows  [][]string // of a table, header first
}

// read turns Markdown into blocks. It supports what the handbook uses and rejects
// the rest, so that no part of the handbook is missing from a sample.
func read(markdown goldmark.Markdown, md []byte) ([]block, error) {
	var out []block
	for n := markdown.Parser().Parse(text.NewReader(md)).FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			out = append(out, block{kind: title, level: n.Level, text: plain(n, md)})
		case *ast.Paragraph:
			out = append(out, block{text: plain(n, md)})
		case *ast.FencedCodeBlock:
			var s strings.Builder
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				s.Write(line.Value(md))
			}
			out = append(out, block{kind: code, text: strings.TrimRight(s.String(), "\n")})
		case *east.Table:
			b := block{kind: table}
			for row := n.FirstChild(); row != nil; row = row.NextSibling() {
				var cells []string
				for c := row.FirstChild(); c != nil; c = c.NextSibling() {
					cells = append(cells, plain(c, md))
				}
				b.rows = append(b.rows, cells)
			}
			out = append(out, b)
		default:
			return nil, fmt.Errorf("the handbook holds a %s, which the samples cannot show", n.Kind())
		}
	}
	if len(out) == 0 || out[0].kind != title {
		return nil, fmt.Errorf("the handbook must begin with its title")
	}
	return out, nil
}

// plain returns the text of a node without markup.
func plain(n ast.Node, md []byte) string {
	var s strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			s.Write(t.Segment.Value(md))
			if t.SoftLineBreak() {
				s.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return s.String()
}
