//go:build !unix

package pdfiumwasm

import "context"

func withAllocator(ctx context.Context) context.Context { return ctx }
