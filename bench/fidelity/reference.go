package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// reference is another program that reads the same files.
type reference struct {
	command string // as typed by a user, with FILE for the file
	// read returns the words per page, or of the whole file as one; files it cannot
	// read are missing.
	read func(ctx context.Context, paths []string, tmp string) (map[string][][]string, error)
}

var (
	pdftotext = perFile("pdftotext -l "+strconv.Itoa(mostPages)+" FILE -", true)
	mutool    = perFile("mutool draw -q -F txt -o - FILE 1-"+strconv.Itoa(mostPages), true)
)

func pandoc(format string) reference {
	return perFile("pandoc -f "+format+" -t plain --wrap=none FILE", false)
}

// perFile is a program that prints a file's text. pdftotext and mutool end each
// page with a form feed.
func perFile(command string, pages bool) reference {
	return reference{command, func(ctx context.Context, paths []string, _ string) (map[string][][]string, error) {
		out := map[string][][]string{}
		for _, path := range paths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			args := strings.Fields(command)
			for i, a := range args {
				if a == "FILE" {
					args[i] = path
				}
			}
			text, err := output(ctx, args)
			if err != nil && !(pages && len(text) > 0) { // one bad page does not affect the others
				continue
			}
			if pages {
				for p := range strings.SplitSeq(text, "\f") {
					out[path] = append(out[path], words(p))
				}
			} else {
				out[path] = [][]string{words(text)}
			}
		}
		return out, nil
	}}
}

func output(ctx context.Context, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, referenceTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var text bytes.Buffer
	cmd.Stdout = &text
	err := cmd.Run()
	return text.String(), err
}

// officeBatch is how many files are converted per start of LibreOffice: a start
// costs more than a file, and a file that crashes it loses the rest of the batch.
const officeBatch = 16

// office is LibreOffice, converting to text directly or via PDF.
func office(filter, ext string) reference {
	name := "soffice --headless --convert-to \"" + filter + "\" FILE"
	if ext == "pdf" {
		name += " && pdftotext FILE.pdf -"
	}
	return reference{name, func(ctx context.Context, paths []string, tmp string) (map[string][][]string, error) {
		out := map[string][][]string{}
		for batch := range slices.Chunk(paths, officeBatch) {
			dir, err := os.MkdirTemp(tmp, "office-")
			if err != nil {
				return nil, err
			}
			if err := convert(ctx, filter, dir, batch, tmp); err != nil {
				return nil, err
			}
			for _, path := range batch {
				made := filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))+"."+ext)
				var text string
				if ext == "pdf" {
					text, err = output(ctx, []string{"pdftotext", made, "-"})
				} else {
					var b []byte
					b, err = os.ReadFile(made)
					text = string(b)
				}
				if err == nil {
					out[path] = [][]string{words(text)}
				}
			}
			if err := os.RemoveAll(dir); err != nil {
				return nil, err
			}
		}
		return out, nil
	}}
}

// convert runs LibreOffice on files, with its own profile. Files it could not
// convert are missing in dir; that is not an error.
func convert(ctx context.Context, filter, dir string, paths []string, tmp string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*referenceTime)
	defer cancel()
	args := []string{"-env:UserInstallation=file://" + filepath.Join(tmp, "office-profile"), "--headless", "--convert-to", filter, "--outdir", dir}
	cmd := exec.CommandContext(ctx, "soffice", append(args, paths...)...)
	cmd.Env = append(os.Environ(), "HOME="+tmp)
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		if _, found := err.(*exec.ExitError); !found {
			return fmt.Errorf("LibreOffice does not start: %w", err)
		}
	}
	return nil
}
