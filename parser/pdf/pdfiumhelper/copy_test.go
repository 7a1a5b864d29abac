package pdfiumhelper

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// copies compares host/copy.h with copying one by one: all lengths that are treated
// differently, between all places that overlap and some that do not. It prints the
// first difference.
const copies = `
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
#define memmove copied_over
#define memcpy copied_beside
#include "copy.h"
int main(void) {
	static u8 a[512], b[512], whole[512];
	for (size_t n = 0; n <= 150; n++)
		for (size_t to = 0; to <= 340; to++)
			for (int beside = 0; beside < 2; beside++) {
				size_t from = 170;
				if (beside && to < from + n && from < to + n) continue; // memcpy's may not overlap
				for (size_t i = 0; i < sizeof a; i++) a[i] = b[i] = whole[i] = i * 7 + n;
				for (size_t i = 0; i < n; i++) b[to + i] = whole[from + i];
				void *got = beside ? copied_beside(a + to, a + from, n) : copied_over(a + to, a + from, n);
				for (size_t i = 0; i < sizeof a; i++)
					if (a[i] != b[i] || got != a + to) return printf("%zu bytes to %zu, memcpy %d: byte %zu differs\n", n, to, beside, i), 1;
			}
	return 0;
}
`

func TestCopiesAsTheStandardLibrary(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip("no C compiler, which make helper needs")
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "copies.c"), filepath.Join(dir, "copies")
	if err := os.WriteFile(source, []byte(copies), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O2", "-Wall", "-I", "host", source, "-o", program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
