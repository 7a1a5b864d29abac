//go:build unix && !linux

package pdfiumwasm

func adviseHuge([]byte) {}
