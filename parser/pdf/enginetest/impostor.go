package enginetest

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sheaf/parser/pdf/engine"
)

// Impostor is a stand-in for sheaf-pdfium that misbehaves in the named way. Those
// in Deceivers relay the real program's answers up to the page at index 2. It
// claims to be built from module. The package's TestMain must call MaybeImpostor.
func Impostor(t testing.TB, way, module string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "impostor")
	script := fmt.Sprintf("#!/bin/sh\nSHEAF_TEST_IMPOSTOR=%s SHEAF_TEST_MODULE=%s SHEAF_TEST_PDFIUM='%s' exec '%s'\n", way, module, os.Getenv("SHEAF_TEST_PDFIUM"), self)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Deceivers are the ways in which an otherwise working Impostor misbehaves at a page.
var Deceivers = []string{"dies", "hangs", "garbage", "long-frame", "cut-frame", "unknown-frame", "no-page", "twice", "odd-runs", "wild-font", "too-many-rules", "no-end", "wild-end", "asks-outside"}

// Protocol is the protocol that an Impostor says it speaks: that of host.c.
const Protocol = 2

// Slow is an Impostor that computes for a second before it answers a page request,
// truthfully.
const Slow = "slow"

// MaybeImpostor turns the process into an Impostor if it was started as one.
func MaybeImpostor() {
	if way := os.Getenv("SHEAF_TEST_IMPOSTOR"); way != "" {
		impostor(way)
		os.Exit(0)
	}
}

func frame(kind byte, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(kind))
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(body))), body...)
}

func readFrame(r io.Reader) (kind byte, whole []byte) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		os.Exit(0)
	}
	whole = append(head, make([]byte, binary.LittleEndian.Uint32(head[4:]))...)
	if _, err := io.ReadFull(r, whole[8:]); err != nil {
		os.Exit(0)
	}
	return head[0], whole
}

func say(b []byte) {
	if _, err := os.Stdout.Write(b); err != nil {
		os.Exit(0)
	}
}

func impostor(way string) {
	hello := func(protocol uint32, module string) {
		b := binary.LittleEndian.AppendUint32(nil, protocol)
		say(frame('H', append(binary.LittleEndian.AppendUint32(b, 1), module...)))
	}
	known := os.Getenv("SHEAF_TEST_MODULE")
	switch way {
	case "protocol":
		hello(999, known)
		return
	case "module":
		hello(Protocol, fmt.Sprintf("%064d", 7))
		return
	case "opens-nothing", "endless":
		hello(Protocol, known)
		request := make([]byte, 24)
		if _, err := io.ReadFull(os.Stdin, request); err != nil {
			return
		}
		if way == "opens-nothing" {
			say(frame('E', make([]byte, 12)))
		}
		for way == "endless" {
			say(frame('O', make([]byte, 4)))
		}
		return
	}

	// Relay between the parser and the real program.
	real := exec.Command(os.Getenv("SHEAF_TEST_PDFIUM"), "serve")
	document := os.NewFile(3, "document")
	real.ExtraFiles = []*os.File{document}
	in, err := real.StdinPipe()
	if err != nil {
		return
	}
	out, err := real.StdoutPipe()
	if err != nil || real.Start() != nil {
		return
	}
	_, first := readFrame(out)
	say(first)
	for {
		request := make([]byte, 24)
		if _, err := io.ReadFull(os.Stdin, request); err != nil {
			break
		}
		behind := make([]byte, binary.LittleEndian.Uint32(request[20:]))
		if _, err := io.ReadFull(os.Stdin, behind); err != nil {
			break
		}
		if binary.LittleEndian.Uint32(request) == 2 && binary.LittleEndian.Uint32(request[4:]) == 2 {
			if deceive(way); way != Slow {
				break
			}
		}
		if way == Slow && binary.LittleEndian.Uint32(request) == 2 {
			for begun := time.Now(); time.Since(begun) < time.Second; { // busy
			}
		}
		if _, err := in.Write(append(request, behind...)); err != nil {
			break
		}
		for {
			kind, whole := readFrame(out)
			say(whole)
			if kind == 'E' {
				break
			}
		}
	}
	_ = real.Process.Kill()
	_ = real.Wait()
}

func deceive(way string) {
	page := frame('P', make([]byte, 28))
	label, end := frame('T', nil), frame('E', make([]byte, 12))
	join := func(all ...[]byte) (b []byte) {
		for _, f := range all {
			b = append(b, f...)
		}
		return b
	}
	switch way {
	case "hangs":
		time.Sleep(time.Hour)
	case "garbage":
		say([]byte("this is not what a page looks like, however long one looks at it"))
	case "long-frame":
		say(append([]byte{'C', 0, 0, 0}, 0xFF, 0xFF, 0xFF, 0x7F))
		time.Sleep(time.Hour)
	case "cut-frame":
		say(join(page, frame('C', make([]byte, 400))[:100]))
	case "unknown-frame":
		say(join(page, frame('?', nil), label, end))
	case "no-page":
		say(end)
	case "twice":
		say(join(page, page, label, end))
	case "odd-runs":
		say(join(page, frame('U', make([]byte, 20)), label, end)) // of characters that never follow
	case "wild-font":
		run := make([]byte, 20)
		binary.LittleEndian.PutUint32(run[4:], 1<<20)
		say(join(page, frame('U', run), frame('C', append([]byte{'x', 0, 0, 0}, make([]byte, 16)...)), label, end))
	case "too-many-rules":
		say(page)
		for range engine.MaxRules/1000 + 1 {
			say(frame('R', make([]byte, 16*1000)))
		}
		say(join(label, end))
	case "no-end":
		say(page)
		for {
			say(frame('F', make([]byte, 8)))
		}
	case "wild-end":
		say(join(page, label, frame('E', []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0})))
	case "asks-outside":
		say(frame('N', append(make([]byte, 6), 1, 0, 1, 0, 0, 0)))
	case "dies":
		os.Exit(9)
	}
}
