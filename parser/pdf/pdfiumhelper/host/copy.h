// memcpy and memmove instead of musl's, which take a tenth of a page's time: they begin
// with rep movsq, and PDFium mostly copies fewer bytes than that takes to start.
// copy_test.go compares them with copying one by one.

typedef u64 eight __attribute__((aligned(1), may_alias));
typedef u32 four __attribute__((aligned(1), may_alias));
typedef u16 two __attribute__((aligned(1), may_alias));
typedef u64 wide __attribute__((vector_size(16), aligned(1), may_alias));

// copied reads what it may overwrite before it writes. A loop in it must not be
// compiled to a call of memmove.
#define COPIES __attribute__((optimize("no-tree-loop-distribute-patterns")))
static inline __attribute__((always_inline)) COPIES void *copied(void *to, const void *from, size_t n) {
	u8 *d = to;
	const u8 *s = from;
	if (n <= 16) {
		if (n >= 8) {
			u64 a = *(eight *)s, b = *(eight *)(s + n - 8);
			*(eight *)d = a, *(eight *)(d + n - 8) = b;
		} else if (n >= 4) {
			u32 a = *(four *)s, b = *(four *)(s + n - 4);
			*(four *)d = a, *(four *)(d + n - 4) = b;
		} else if (n >= 2) {
			u16 a = *(two *)s, b = *(two *)(s + n - 2);
			*(two *)d = a, *(two *)(d + n - 2) = b;
		} else if (n) {
			*d = *s;
		}
		return to;
	}
	wide first = *(wide *)s, last = *(wide *)(s + n - 16);
	if ((size_t)(d - s) >= n) { // forwards, also where what is read lies behind
		for (size_t i = 16; i + 16 < n; i += 16) {
			wide v = *(wide *)(s + i);
			*(wide *)(d + i) = v;
		}
	} else {
		for (size_t i = n - 16; i > 16; i -= 16) {
			wide v = *(wide *)(s + i - 16);
			*(wide *)(d + i - 16) = v;
		}
	}
	*(wide *)d = first, *(wide *)(d + n - 16) = last;
	return to;
}

COPIES void *memmove(void *to, const void *from, size_t n) { return copied(to, from, n); }
COPIES void *memcpy(void *restrict to, const void *restrict from, size_t n) { return copied(to, from, n); }
