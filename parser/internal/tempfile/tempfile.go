// Package tempfile is shared by formats that write to their temporary folder: the
// failure when it is full, and files that replace the original and are read by
// another format.
package tempfile

import (
	"context"
	"errors"
	"os"

	"sheaf"
	"sheaf/parser"
)

// Full is the failure of a full temporary folder.
func Full(err error) error {
	return sheaf.FailRetryable(sheaf.CategoryCapacity, "storage_full", "The temporary folder took no more data (%v); free some space there or set another folder.", err)
}

// Open writes content to a new file in folder, named by pattern as in
// os.CreateTemp, and has open read the document from it. The file is removed when
// the document is closed, or at once on an error.
func Open(folder, pattern string, content []byte, open func(*os.File) (parser.Document, error)) (parser.Document, error) {
	file, err := os.CreateTemp(folder, pattern)
	if err != nil {
		return nil, Full(err)
	}
	d := &document{file: file}
	if _, err := file.Write(content); err != nil {
		return nil, errors.Join(Full(err), d.remove())
	}
	if d.Document, err = open(file); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

type document struct {
	parser.Document
	file *os.File
}

// Picture implements parser.Illustrated if the document does.
func (d *document) Picture(ctx context.Context, name string, side int) ([]byte, error) {
	return parser.PictureOf(ctx, d.Document, name, side)
}

func (d *document) remove() error { return errors.Join(d.file.Close(), os.Remove(d.file.Name())) }

func (d *document) Close() error { return errors.Join(d.Document.Close(), d.remove()) }
