package pdfiumwasm

import "golang.org/x/sys/unix"

func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) } // only advice

// forget returns private memory to the kernel: it reads as zero afterwards.
func forget(b []byte) error { return unix.Madvise(b, unix.MADV_DONTNEED) }
