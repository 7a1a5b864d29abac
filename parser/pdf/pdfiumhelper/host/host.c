// sheaf-pdfium reads one PDF for a parser of Sheaf. It is PDFium, compiled from
// the same WebAssembly module that the engine pdfiumwasm runs (see build.go), and
// this file: the module's surroundings, and what that package does around it.
//
//   descriptor 0  requests, see struct request
//   descriptor 1  answers, frames of a kind, a length and so many bytes
//   descriptor 3  the document, unless its bytes are asked for by frames
//
// All numbers are little endian. pdfiumhelper/helper.go is the other side: what
// changes here changes there, and PROTOCOL with it.
//
// Three walls stand between a hostile document and the system. The code of the
// module reaches its own linear memory alone: each address is 32 bits wide, and
// 8 GB are reserved for what 32 bits and an offset can name. The process may read
// requests and the document, write answers, and grow that memory, nothing else.
// And it is started by a parser that is confined itself. Whatever goes wrong ends
// the process, and the parser reads the page by WebAssembly.
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pdfium.h"

#include "copy.h"

#define PROTOCOL 2

// How the process ends. pdfiumhelper knows them as text.
enum {
	EXIT_DONE = 0,
	EXIT_USAGE = 64,    // not started by a parser
	EXIT_PROTOCOL = 65, // a request that is none, or a broken pipe
	EXIT_MEMORY = 66,   // its memory cannot be reserved
	EXIT_BOUND = 67,    // a document with more of something than is kept here
	EXIT_TRAP = 80,     // and the trap's number
};

static Z_pdfium_instance_t I;
#define P(f, ...) Z_pdfiumZ_##f(&I, ##__VA_ARGS__)
#define MEM(a) ((u8 *)MEMORY_BASE + (u32)(a))

static u32 load32(u32 at) { u32 v; memcpy(&v, MEM(at), 4); return v; }
static void store32(u32 at, u32 v) { memcpy(MEM(at), &v, 4); }
static int inside(u32 at, u64 n) { return (u64)at + n <= I.w2c_memory.size; }

// ---- What the translation needs: memory, the table of functions, traps. ----

#define WASM_PAGE 65536u
#define RESERVED 0x200000000ull // every 32-bit address with every 32-bit offset

void wasm_rt_trap(wasm_rt_trap_t code) { _exit(EXIT_TRAP + code); }

bool wasm_rt_is_initialized(void) { return true; }

void wasm_rt_allocate_memory(wasm_rt_memory_t *m, u32 pages, u32 most) {
	u8 *at = mmap((void *)MEMORY_BASE, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (at != (u8 *)MEMORY_BASE || mprotect(at, (size_t)pages * WASM_PAGE, PROT_READ | PROT_WRITE)) _exit(EXIT_MEMORY);
	madvise(at, RESERVED, MADV_HUGEPAGE); // only advice; measured: 1 ms less per document and 3 % per page
	*m = (wasm_rt_memory_t){.data = at, .pages = pages, .max_pages = most, .size = pages * WASM_PAGE};
}

u32 wasm_rt_grow_memory(wasm_rt_memory_t *m, u32 more) {
	u32 before = m->pages;
	if ((u64)before + more > m->max_pages) return -1;
	if (more && mprotect(m->data + (size_t)before * WASM_PAGE, (size_t)more * WASM_PAGE, PROT_READ | PROT_WRITE)) return -1;
	m->pages += more;
	m->size = m->pages * WASM_PAGE;
	return before;
}

void wasm_rt_free_memory(wasm_rt_memory_t *m) { (void)m; } // the process ends first

void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t *t, u32 size, u32 most) {
	*t = (wasm_rt_funcref_table_t){.data = calloc(size, sizeof *t->data), .size = size, .max_size = most};
	if (size && !t->data) _exit(EXIT_MEMORY);
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t *t) { (void)t; }

// Types of functions, numbered from 1; equal ones have one number.
static struct { u32 params, results; u8 of[32]; } types[512];
static u32 typeCount;

u32 wasm_rt_register_func_type(u32 params, u32 results, ...) {
	if (typeCount == 512 || params + results > 32) _exit(EXIT_MEMORY);
	types[typeCount].params = params;
	types[typeCount].results = results;
	va_list all;
	va_start(all, results);
	for (u32 i = 0; i < params + results; i++) types[typeCount].of[i] = va_arg(all, int);
	va_end(all);
	for (u32 i = 0; i < typeCount; i++)
		if (!memcmp(&types[i], &types[typeCount], sizeof types[i])) return i + 1;
	return ++typeCount;
}

// ---- The pipe. ----

// A request, and length bytes behind it.
struct request {
	u32 op;
	u32 a, b, c;
	u32 pages; // that the memory may have while this is answered, of 64 KB each
	u32 length;
};

enum { // operations
	OP_OPEN = 1,    // a, b: the document's size, low and high; c: its bytes are asked for; behind it the password
	OP_PAGE = 2,    // a: page
	OP_SIZE = 3,    // a: page
	OP_LABEL = 4,   // a: page
	OP_META = 5,    // behind it the key
	OP_OUTLINE = 6, // a: bookmarks at most, b: with their pages
	OP_RENDER = 7,  // a: page, b: width, c: height, in pixels
	OP_PLACE = 8,   // a: page, behind it the object number of each page from it on, u32
};

enum { // kinds of frames
	F_HELLO = 'H',  // u32 PROTOCOL, u32 1 where the filter of system calls is on, the module's SHA-256 in hexadecimal
	F_OPENED = 'O', // u32 pages
	F_NEED = 'N',   // u64 offset, u32 length: bytes that are needed now; answered by a u32 and so many bytes, none where there are none
	F_PAGE = 'P',   // f32 width, height, u32 rotation, f32 left, top, right, bottom of the box
	F_FONT = 'F',   // i32 weight, flags, then the name; fonts count from 0
	F_RUNS = 'U',   // of the characters that follow: u32 place among them, i32 font, f64 size, f32 angle
	F_CHARS = 'C',  // u32 unit; unless it separates words, f32 left, top, right, bottom
	F_RULES = 'R',  // f32 left, bottom, right, top
	F_IMAGES = 'I', // the same
	F_LINK = 'L',   // f32 left, top, right, bottom, i32 page, then the address
	F_TEXT = 'T',   // UTF-16
	F_MARK = 'B',   // i32 level, page, then the title as UTF-16
	F_POINTS = 'S', // f32 width, height
	F_PIXELS = 'Q', // red, green, blue, anything; rows from the top, cut anywhere
	F_FAILED = 'X', // instead of what was asked: u32 reason: an error of PDFium's for OP_OPEN, else FAILED_*
	F_END = 'E',    // of each answer: u32 pages of memory, objects looked at, 1 where something was left out
};

enum { FAILED_PAGE = 1, FAILED_MEMORY = 2 };

#define PAYLOAD 65536u // of one frame at most

static u8 out[4 * PAYLOAD];
static size_t filled, frameAt;

static void flush(void) {
	for (size_t done = 0; done < filled;) {
		ssize_t n = write(1, out + done, filled - done);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) _exit(EXIT_PROTOCOL);
		done += n;
	}
	filled = 0;
}

static void begin(u32 kind) {
	if (filled + 8 + PAYLOAD > sizeof out) flush();
	frameAt = filled;
	memcpy(out + filled, &kind, 4);
	filled += 8;
}

static void put(const void *p, size_t n) {
	if (filled - frameAt - 8 + n > PAYLOAD) _exit(EXIT_BOUND);
	memcpy(out + filled, p, n);
	filled += n;
}

static void put32(u32 v) { put(&v, 4); }
static void putFloat(f32 v) { put(&v, 4); }

static void end(void) {
	u32 n = filled - frameAt - 8;
	memcpy(out + frameAt + 4, &n, 4);
}

// take reads n bytes of the pipe. Its end between two requests is the end.
static void take(void *p, size_t n, int between) {
	for (size_t got = 0; got < n;) {
		ssize_t r = read(0, (u8 *)p + got, n - got);
		if (r < 0 && errno == EINTR) continue;
		if (r <= 0) _exit(r == 0 && got == 0 && between ? EXIT_DONE : EXIT_PROTOCOL);
		got += r;
	}
}

// ---- The document's bytes. ----

static u64 documentBytes;
static int askForBytes;

// Blocks of a document whose bytes are asked for, kept in turn.
#define BLOCK 65536u
static struct { u64 at; u32 length; u8 bytes[BLOCK]; } blocks[8];
static u32 nextBlock;

static const u8 *block(u64 at, u32 *length) {
	for (u32 i = 0; i < 8; i++)
		if (blocks[i].length && blocks[i].at == at) return *length = blocks[i].length, blocks[i].bytes;
	u32 i = nextBlock++ % 8, want = documentBytes - at < BLOCK ? documentBytes - at : BLOCK;
	begin(F_NEED), put(&at, 8), put32(want), end(), flush();
	u32 come;
	take(&come, 4, 0);
	if (come != 0 && come != want) _exit(EXIT_PROTOCOL);
	blocks[i].at = at;
	take(blocks[i].bytes, blocks[i].length = come, 0);
	return come ? *length = come, blocks[i].bytes : NULL;
}

#define E struct Z_env_instance_t *env

u32 Z_envZ_FPDF_FILEACCESS_CB(E, u32 param, u32 position, u32 to, u32 n) {
	if (!inside(to, n) || (u64)position + n > documentBytes) return 0;
	for (u32 left = n; left;) {
		u32 got;
		if (askForBytes) {
			u64 at = position / BLOCK * BLOCK;
			const u8 *b = block(at, &got);
			if (!b) return 0;
			b += position - at, got -= position - at;
			if (got > left) got = left;
			memcpy(MEM(to), b, got);
		} else {
			ssize_t r = pread(3, MEM(to), left, position);
			if (r < 0 && errno == EINTR) continue;
			if (r <= 0) return 0;
			got = r;
		}
		to += got, position += got, left -= got;
	}
	return n;
}

// ---- The rest of the module's imports: forms, which nobody fills in, the jumps
// of C's longjmp, and WASI, of which nothing is reachable. ----

u32 Z_envZ_FPDF_FILEWRITE_CB(E, u32 a, u32 b, u32 c) { return 0; }
void Z_envZ_FPDF_FORMFILLINFO_FFI_DoGoToAction_CB(E, u32 a, u32 b, u32 c, u32 d, u32 f) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_DoURIAction_CB(E, u32 a, u32 b) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_ExecuteNamedAction_CB(E, u32 a, u32 b) {}
u32 Z_envZ_FPDF_FORMFILLINFO_FFI_GetCurrentPage_CB(E, u32 a, u32 b) { return 0; }
void Z_envZ_FPDF_FORMFILLINFO_FFI_GetLocalTime_CB(E, u32 a, u32 b) {}
u32 Z_envZ_FPDF_FORMFILLINFO_FFI_GetPage_CB(E, u32 a, u32 b, u32 c) { return 0; }
u32 Z_envZ_FPDF_FORMFILLINFO_FFI_GetRotation_CB(E, u32 a, u32 b) { return 0; }
void Z_envZ_FPDF_FORMFILLINFO_FFI_Invalidate_CB(E, u32 a, u32 b, f64 c, f64 d, f64 f, f64 g) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_KillTimer_CB(E, u32 a, u32 b) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_OnChange_CB(E, u32 a) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_OutputSelectedRect_CB(E, u32 a, u32 b, f64 c, f64 d, f64 f, f64 g) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_SetCursor_CB(E, u32 a, u32 b) {}
void Z_envZ_FPDF_FORMFILLINFO_FFI_SetTextFieldFocus_CB(E, u32 a, u32 b, u32 c, u32 d) {}
u32 Z_envZ_FPDF_FORMFILLINFO_FFI_SetTimer_CB(E, u32 a, u32 b, u32 c) { return 0; }
void Z_envZ_FPDF_FORMFILLINFO_Release_CB(E, u32 a) {}
u32 Z_envZ_FSDK_SetLocaltimeFunction_CB(E, u32 a) { return 0; }
u64 Z_envZ_FSDK_SetTimeFunction_CB(E) { return 0; }
void Z_envZ_FX_DOWNLOADHINTS_ADD_SEGMENT_CB(E, u32 a, u32 b, u32 c) {}
u32 Z_envZ_FX_FILEAVAIL_IS_DATA_AVAILABLE_CB(E, u32 a, u32 b, u32 c) { return 0; }
u32 Z_envZ_IFSDK_PAUSE_NeedToPauseNow_CB(E, u32 a) { return 0; }
void Z_envZ_UNSUPPORT_INFO_HANDLER_CB(E, u32 a, u32 b) {}
void Z_envZ_emscripten_notify_memory_growth(E, u32 a) {}

#define JUMPS 256 // calls that may be jumped back to, one inside the other
static jmp_buf jumps[JUMPS];
static int jumpCount;

void Z_envZ__emscripten_throw_longjmp(E) {
	if (!jumpCount) _exit(EXIT_TRAP);
	longjmp(jumps[jumpCount - 1], 1);
}

// function is what stands at an index of the table, if its type is the one asked for.
static wasm_rt_funcref_t *function(u32 index, u32 type) {
	wasm_rt_funcref_table_t *t = &I.w2c___indirect_function_table;
	if (index >= t->size || !t->data[index].func || t->data[index].func_type != type) wasm_rt_trap(WASM_RT_TRAP_CALL_INDIRECT);
	return &t->data[index];
}

static u32 type_ii, type_iii, type_iiii, type_iiiii, type_viii;

static void registerTypes(void) {
	int i = WASM_RT_I32;
	type_ii = wasm_rt_register_func_type(1, 1, i, i);
	type_iii = wasm_rt_register_func_type(2, 1, i, i, i);
	type_iiii = wasm_rt_register_func_type(3, 1, i, i, i, i);
	type_iiiii = wasm_rt_register_func_type(4, 1, i, i, i, i, i);
	type_viii = wasm_rt_register_func_type(3, 0, i, i, i);
}

// INVOKE makes a call that may be left by longjmp, as emscripten's does.
#define INVOKE(type, keep, signature, ...) \
	wasm_rt_funcref_t *f = function(index, type); \
	if (jumpCount == JUMPS) _exit(EXIT_BOUND); \
	u32 stack = P(emscripten_stack_get_current); \
	volatile int depth = jumpCount; \
	if (!setjmp(jumps[jumpCount++])) { \
		keep ((signature)f->func)(f->module_instance, ##__VA_ARGS__); \
		jumpCount = depth; \
	} else { \
		jumpCount = depth; \
		P(_emscripten_stack_restore, stack); \
		P(setThrew, 1, 0); \
	}

u32 Z_envZ_invoke_ii(E, u32 index, u32 a) { volatile u32 result = 0; INVOKE(type_ii, result =, u32(*)(void *, u32), a) return result; }
u32 Z_envZ_invoke_iii(E, u32 index, u32 a, u32 b) { volatile u32 result = 0; INVOKE(type_iii, result =, u32(*)(void *, u32, u32), a, b) return result; }
u32 Z_envZ_invoke_iiii(E, u32 index, u32 a, u32 b, u32 c) { volatile u32 result = 0; INVOKE(type_iiii, result =, u32(*)(void *, u32, u32, u32), a, b, c) return result; }
u32 Z_envZ_invoke_iiiii(E, u32 index, u32 a, u32 b, u32 c, u32 d) { volatile u32 result = 0; INVOKE(type_iiiii, result =, u32(*)(void *, u32, u32, u32, u32), a, b, c, d) return result; }
void Z_envZ_invoke_viii(E, u32 index, u32 a, u32 b, u32 c) { INVOKE(type_viii, , void (*)(void *, u32, u32, u32), a, b, c) }

#define W struct Z_wasi_snapshot_preview1_instance_t *w
#define WASI(name) Z_wasi_snapshot_preview1Z_##name
enum { WASI_BADF = 8, WASI_FAULT = 21, WASI_NOENT = 44 };

// A clock that knows no time of day and needs no system call: a millisecond goes
// by each time it is asked, as with wazero's.
u32 WASI(clock_time_get)(W, u32 id, u64 precision, u32 to) {
	static u64 now = 1640995200000000000ull;
	if (!inside(to, 8)) return WASI_FAULT;
	now += 1000000;
	memcpy(MEM(to), &now, 8);
	return 0;
}
u32 WASI(environ_get)(W, u32 a, u32 b) { return 0; }
u32 WASI(environ_sizes_get)(W, u32 a, u32 b) {
	if (!inside(a, 4) || !inside(b, 4)) return WASI_FAULT;
	store32(a, 0), store32(b, 0);
	return 0;
}
u32 WASI(fd_close)(W, u32 fd) { return WASI_BADF; }
u32 WASI(fd_fdstat_get)(W, u32 fd, u32 a) { return WASI_BADF; }
u32 WASI(fd_fdstat_set_flags)(W, u32 fd, u32 a) { return WASI_BADF; }
u32 WASI(fd_filestat_get)(W, u32 fd, u32 a) { return WASI_BADF; }
u32 WASI(fd_filestat_set_size)(W, u32 fd, u64 a) { return WASI_BADF; }
u32 WASI(fd_prestat_dir_name)(W, u32 fd, u32 a, u32 b) { return WASI_BADF; }
u32 WASI(fd_prestat_get)(W, u32 fd, u32 a) { return WASI_BADF; }
u32 WASI(fd_read)(W, u32 fd, u32 a, u32 b, u32 c) { return WASI_BADF; }
u32 WASI(fd_readdir)(W, u32 fd, u32 a, u32 b, u64 c, u32 d) { return WASI_BADF; }
u32 WASI(fd_seek)(W, u32 fd, u64 a, u32 b, u32 c) { return WASI_BADF; }
u32 WASI(fd_sync)(W, u32 fd) { return WASI_BADF; }
u32 WASI(fd_write)(W, u32 fd, u32 vectors, u32 n, u32 to) { // taken and thrown away
	u32 sum = 0;
	for (u32 k = 0; k < n && inside(vectors + 8 * k, 8); k++) sum += load32(vectors + 8 * k + 4);
	if (!inside(to, 4)) return WASI_FAULT;
	store32(to, sum);
	return 0;
}
u32 WASI(path_filestat_get)(W, u32 a, u32 b, u32 c, u32 d, u32 f) { return WASI_NOENT; }
u32 WASI(path_open)(W, u32 a, u32 b, u32 c, u32 d, u32 f, u64 g, u64 h, u32 i, u32 j) { return WASI_NOENT; }
u32 WASI(path_remove_directory)(W, u32 a, u32 b, u32 c) { return WASI_NOENT; }
u32 WASI(path_unlink_file)(W, u32 a, u32 b, u32 c) { return WASI_NOENT; }
void WASI(proc_exit)(W, u32 code) { _exit(EXIT_TRAP); }

// ---- What pdfiumwasm does around the module. Each function here is one there,
// with the same limits (package engine) and in the same order. ----

enum { // package engine
	MAX_CHARS = 400000,
	MAX_OBJECTS = 20000,
	MAX_RULES = 4000,
	MAX_IMAGES = 500,
	MAX_LINKS = 500,
	MAX_LINKED_PAGES = 500,
	MAX_SEGMENTS = 400,
	MAX_DEPTH = 3,
};

#define SCRATCH 8192u // bytes for what the module writes, and BATCH behind them for page.wat
#define BATCH 65536u

static u32 document, pageCount, scratch, batch;

struct rect { f32 l, b, r, t; };
struct affine { f32 a, b, c, d, e, f; };

// Go's min and max: not a number wins, and zeros have signs.
static f32 least(f32 a, f32 b) {
	if (a != a || b != b) return a + b;
	if (a == 0 && b == 0) return __builtin_signbit(a) ? a : b;
	return a < b ? a : b;
}
static f32 most(f32 a, f32 b) {
	if (a != a || b != b) return a + b;
	if (a == 0 && b == 0) return __builtin_signbit(a) ? b : a;
	return a > b ? a : b;
}
static struct rect rect(f32 l, f32 t, f32 r, f32 b) { return (struct rect){least(l, r), least(b, t), most(l, r), most(b, t)}; }

static void apply(struct affine m, f32 x, f32 y, f32 *toX, f32 *toY) {
	*toX = m.a * x + m.c * y + m.e;
	*toY = m.b * x + m.d * y + m.f;
}

static struct affine times(struct affine m, struct affine n) {
	return (struct affine){
		m.a * n.a + m.c * n.b, m.b * n.a + m.d * n.b,
		m.a * n.c + m.c * n.d, m.b * n.c + m.d * n.d,
		m.a * n.e + m.c * n.f + m.e, m.b * n.e + m.d * n.f + m.f,
	};
}

static struct affine matrix(void) {
	struct affine m;
	memcpy(&m, MEM(scratch), sizeof m);
	return m;
}

// text16 is the length in bytes of what a function wrote as UTF-16 with an
// ending zero, which does not count.
static u32 text16(u32 n) { return (s32)n < 4 || n > SCRATCH - 64 ? 0 : n - 2; }
static u32 text8(u32 n) { return (s32)n < 2 || n > SCRATCH ? 0 : n - 1; }

static void putText(u32 n) { put(MEM(scratch), n); }

// Fonts by their handles.
#define FONTS 65536u
static struct { u32 handle, number; } fonts[FONTS];
static u32 fontCount;

static u32 font(u32 handle) {
	if (!handle) return -1;
	u32 i = handle * 2654435761u >> 16;
	for (; fonts[i].handle; i = (i + 1) % FONTS)
		if (fonts[i].handle == handle) return fonts[i].number;
	if (fontCount == FONTS / 2) _exit(EXIT_BOUND);
	u32 n = text8(P(FPDFFont_GetBaseFontName, handle, scratch, SCRATCH));
	u8 name[SCRATCH];
	memcpy(name, MEM(scratch), n);
	u32 weight = P(FPDFFont_GetWeight, handle), style = P(FPDFFont_GetFlags, handle);
	begin(F_FONT), put32(weight), put32(style), put(name, n), end();
	fonts[i].handle = handle;
	return fonts[i].number = fontCount++;
}

static int space(u32 unit) { return unit == 0 || unit == ' ' || unit == '\t' || unit == '\r' || unit == '\n' || unit == 0xA0; }

static int truncated;

static void readChars(u32 text) {
	u32 n = P(FPDFText_CountChars, text);
	if ((s32)n < 0) n = 0;
	if (n > MAX_CHARS) n = MAX_CHARS, truncated = 1;
	struct { u32 unit, object; f32 box[4]; f64 size; u32 font; f32 angle; } c; // of page.wat
	static struct __attribute__((packed)) { u32 at, font; f64 size; f32 angle; } runs[BATCH / sizeof c];
	_Static_assert(sizeof c == 40 && sizeof runs[0] == 20, "as page.wat writes and F_RUNS says");
	u32 inWord = 0, last = 0;
	for (u32 from = 0; from < n;) {
		u32 count = n - from < BATCH / sizeof c ? n - from : BATCH / sizeof c, runCount = 0;
		inWord = P(sheaf_chars, text, from, count, inWord, last, batch);
		for (u32 k = 0; k < count; k++) {
			memcpy(&c, MEM(batch + k * sizeof c), sizeof c);
			if (space(c.unit) || !c.object) continue;
			last = c.object;
			runs[runCount].at = k, runs[runCount].size = c.size, runs[runCount].angle = c.angle;
			runs[runCount++].font = font(c.font);
		}
		if (runCount) begin(F_RUNS), put(runs, runCount * sizeof runs[0]), end();
		begin(F_CHARS);
		for (u32 k = 0; k < count; k++) {
			u8 *at = MEM(batch + k * sizeof c);
			u32 unit = load32(batch + k * sizeof c);
			put32(unit);
			if (!space(unit)) put(at + offsetof(typeof(c), box), 16);
		}
		end();
		from += count;
	}
}

static void failed(u32 reason) { begin(F_FAILED), put32(reason), end(); }

// The pages by their object numbers, as far as the parser has told them. Of two
// pages with one number the first counts.
#define PLACES 2048u // more than twice MAX_LINKED_PAGES
static struct { u32 number, after; } places[PLACES]; // after: 1 + the page, 0 where there is none
static u32 placeCount;

// slotOf returns where a number is in places, or where it would be.
static u32 slotOf(u32 number) {
	u32 i = number * 2654435761u >> 21;
	while (places[i].after && places[i].number != number) i = (i + 1) % PLACES;
	return i;
}

// place tells PDFium which objects some pages are, so that it need not read those
// before them.
static void place(u32 from, const u8 *numbers, u32 n) {
	_Static_assert(SCRATCH <= BATCH, "what comes behind a request has room in the batch");
	memcpy(MEM(batch), numbers, n * 4);
	if (!P(sheaf_place, document, from, n, batch)) {
		failed(FAILED_PAGE);
		return;
	}
	for (u32 k = 0; k < n && pageCount <= MAX_LINKED_PAGES && placeCount < PLACES / 2; k++) {
		u32 number, i;
		memcpy(&number, numbers + 4 * k, 4);
		i = slotOf(number);
		if (!places[i].after) places[i].number = number, places[i].after = 1 + from + k, placeCount++;
	}
}

// destination returns the page of a destination, -1 for none. To identify it PDFium
// reads the page's object, and the object stream that contains it. For a page that
// is placed the number is read from memory instead, as document.destination of
// package pdfiumwasm does and explains.
static u32 destination(u32 dest) {
	static u32 reference; // first word of reference objects; 0 while unknown
	u32 known = 0, kind = 0;
	if (placeCount && inside(dest, 20)) {
		u32 elements = load32(dest + 16);
		u32 element = inside(elements, 4) ? load32(elements) : 0;
		if (element && inside(element, 24)) kind = load32(element), known = places[slotOf(load32(element + 20))].after;
	}
	if (known && kind && kind == reference) return known - 1;
	u32 said = P(FPDFDest_GetDestPageIndex, document, dest);
	if (known && kind && said == known - 1) reference = kind;
	return said;
}

// Where areas of the page lead. More of them are told than are kept: those whose
// address turns out to be none do not count.
static void links(u32 page) {
	const u32 action = 8, uri = 3; // place of the link's handle in the scratch buffer; fpdf_doc.h: PDFACTION_URI
	u32 position = 0, told = 0;
	while (told < 10 * MAX_LINKS) {
		store32(scratch, position);
		if (!(P(FPDFLink_Enumerate, page, scratch, scratch + action) & 0xFF)) return;
		u32 next = load32(scratch), link = load32(scratch + action);
		if (next <= position) return;
		position = next;
		if (!(P(FPDFLink_GetAnnotRect, link, scratch) & 0xFF)) continue;
		u8 box[16];
		memcpy(box, MEM(scratch), 16);
		u32 to = -1, n = 0, a = P(FPDFLink_GetAction, link);
		if (a && P(FPDFAction_GetType, a) == uri) {
			n = text8(P(FPDFAction_GetURIPath, document, a, scratch, SCRATCH));
		} else if (pageCount <= MAX_LINKED_PAGES) {
			u32 dest = P(FPDFLink_GetDest, document, link);
			if (dest) to = destination(dest);
		}
		if (n || (s32)to >= 0) begin(F_LINK), put(box, 16), put32(to), putText(n), end(), told++;
	}
}

enum { OBJECT_PATH = 2, OBJECT_IMAGE = 3, OBJECT_FORM = 5 }; // fpdf_edit.h: FPDF_PAGEOBJ_*

#define OBJECT_BATCH 256
struct object { u32 index, handle, type, bounded; f32 box[4]; }; // of page.wat

static struct rect rules[MAX_RULES], images[MAX_IMAGES];
static u32 ruleCount, imageCount, objectCount;

static struct rect bounds(const struct object *o, struct affine m) {
	f32 x0, y0, x1, y1;
	apply(m, o->box[0], o->box[1], &x0, &y0);
	apply(m, o->box[2], o->box[3], &x1, &y1);
	return rect(x0, y1, x1, y0);
}

static void line(f32 x0, f32 y0, f32 x1, f32 y1) {
	struct rect r = rect(x0, most(y0, y1), x1, least(y0, y1));
	f32 w = r.r - r.l, h = r.t - r.b;
	if (((w <= 1 && h > 4) || (h <= 1 && w > 4)) && ruleCount < MAX_RULES) rules[ruleCount++] = r;
}

static void path(const struct object *o, struct affine m) {
	const f32 thin = 3; // points up to which a filled box is a drawn line
	struct rect r = bounds(o, m);
	f32 w = r.r - r.l, h = r.t - r.b;
	if (w <= thin || h <= thin) {
		if (w > 4 || h > 4) rules[ruleCount++] = r; // the caller knows that there is room
		return;
	}
	s32 n = P(FPDFPath_CountSegments, o->handle);
	if (n < 2 || n > MAX_SEGMENTS) return;
	struct affine own = m;
	if (P(FPDFPageObj_GetMatrix, o->handle, scratch)) own = times(m, matrix());
	n = P(sheaf_segments, o->handle, n, batch);
	f32 x = 0, y = 0, startX = 0, startY = 0;
	for (s32 k = 0; k < n; k++) {
		struct { u32 type, closes; f32 x, y; } s;
		memcpy(&s, MEM(batch + k * sizeof s), sizeof s);
		f32 toX, toY;
		apply(own, s.x, s.y, &toX, &toY);
		if (s.type == 2) startX = toX, startY = toY; // fpdf_edit.h: 0 line, 1 curve, 2 move
		else if (s.type == 0) line(x, y, toX, toY);
		x = toX, y = toY;
		if (s.closes) line(x, y, startX, startY);
	}
}

static int look(u32 to, u32 *looked) {
	objectCount += to - *looked;
	if (objectCount > MAX_OBJECTS) return objectCount = MAX_OBJECTS + 1, truncated = 1, 0;
	*looked = to;
	return 1;
}

static void walk(u32 parent, u32 isForm, s32 n, struct affine m, int depth) {
	u32 looked = 0;
	while ((s32)looked < n) {
		u32 to = looked + MAX_OBJECTS < (u32)n ? looked + MAX_OBJECTS : (u32)n; // what lies behind is not looked at
		s32 count = P(sheaf_objects, parent, isForm, looked, to, batch, OBJECT_BATCH);
		if (count < 0 || count > OBJECT_BATCH) _exit(EXIT_TRAP);
		struct object found[OBJECT_BATCH];
		memcpy(found, MEM(batch), count * sizeof found[0]);
		for (s32 i = 0; i < count; i++) {
			struct object *o = &found[i];
			if (!look(o->index + 1, &looked)) return;
			if (o->type == OBJECT_PATH && ruleCount < MAX_RULES && o->bounded) {
				path(o, m);
			} else if (o->type == OBJECT_IMAGE && imageCount < MAX_IMAGES && o->bounded) {
				images[imageCount++] = bounds(o, m);
			} else if (o->type == OBJECT_FORM && depth < MAX_DEPTH) {
				struct affine inner = m;
				if (P(FPDFPageObj_GetMatrix, o->handle, scratch)) inner = times(m, matrix());
				walk(o->handle, 1, P(FPDFFormObj_CountObjects, o->handle), inner, depth + 1);
			}
		}
		if (count < OBJECT_BATCH && !look(to, &looked)) return;
	}
}

static void putRects(u32 kind, const struct rect *all, u32 n) {
	const u32 most = PAYLOAD / sizeof *all;
	for (u32 from = 0; from < n; from += most) begin(kind), put(all + from, (n - from < most ? n - from : most) * sizeof *all), end();
}

static void label(u32 n) {
	u32 length = text16(P(FPDF_GetPageLabel, document, n, scratch, SCRATCH - 64));
	begin(F_TEXT), putText(length), end();
}

static void page(u32 n) {
	u32 page = P(FPDF_LoadPage, document, n);
	if (!page) {
		failed(FAILED_PAGE);
		return;
	}
	f32 width = P(FPDF_GetPageWidthF, page), height = P(FPDF_GetPageHeightF, page);
	u32 rotation = P(FPDFPage_GetRotation, page);
	P(FPDF_GetPageBoundingBox, page, scratch);
	begin(F_PAGE), putFloat(width), putFloat(height), put32(rotation), put(MEM(scratch), 16), end();
	u32 text = P(FPDFText_LoadPage, page);
	if (text) {
		readChars(text);
		P(FPDFText_ClosePage, text);
	}
	ruleCount = imageCount = 0;
	walk(page, 0, P(FPDFPage_CountObjects, page), (struct affine){1, 0, 0, 1, 0, 0}, 0);
	putRects(F_RULES, rules, ruleCount);
	putRects(F_IMAGES, images, imageCount);
	links(page);
	P(FPDF_ClosePage, page);
	label(n);
}

// Bookmarks that were walked to: damaged files have cycles.
#define MARKS 131072u
static u32 seen[MARKS], seenCount;

static int see(u32 handle) { // 0 where it was seen before
	u32 i = handle * 2654435761u >> 15;
	for (; seen[i]; i = (i + 1) % MARKS)
		if (seen[i] == handle) return 0;
	if (++seenCount == MARKS / 2) _exit(EXIT_BOUND);
	seen[i] = handle;
	return 1;
}

static u32 target(u32 mark) {
	u32 dest = P(FPDFBookmark_GetDest, document, mark);
	if (!dest) {
		u32 action = P(FPDFBookmark_GetAction, mark);
		if (action) dest = P(FPDFAction_GetDest, document, action);
	}
	return dest ? P(FPDFDest_GetDestPageIndex, document, dest) : -1u;
}

// blank reports whether UTF-16 text holds nothing but what Go takes for space.
static int blank(const u8 *text, u32 n) {
	for (; n >= 2; text += 2, n -= 2) {
		u32 u = text[0] | text[1] << 8;
		if (!((u >= 9 && u <= 13) || u == ' ' || u == 0x85 || u == 0xA0 || u == 0x1680 || (u >= 0x2000 && u <= 0x200A) || u == 0x2028 || u == 0x2029 || u == 0x202F || u == 0x205F || u == 0x3000)) return 0;
	}
	return 1;
}

static void marks(u32 parent, u32 level, u32 limit, u32 pages, u32 *count) {
	u32 mark = P(FPDFBookmark_GetFirstChild, document, parent);
	while (mark && *count < limit && see(mark)) {
		u8 title[SCRATCH];
		u32 n = text16(P(FPDFBookmark_GetTitle, mark, scratch, SCRATCH - 64));
		memcpy(title, MEM(scratch), n);
		u32 to = pages ? target(mark) : -1u;
		if (!blank(title, n)) begin(F_MARK), put32(level), put32(to), put(title, n), end(), ++*count;
		if (level < 16) marks(mark, level + 1, limit, pages, count);
		mark = P(FPDFBookmark_GetNextSibling, document, mark);
	}
}

static void render(u32 n, u32 w, u32 h) {
	u32 page = P(FPDF_LoadPage, document, n);
	if (!page) {
		failed(FAILED_PAGE);
		return;
	}
	u32 bitmap = P(FPDFBitmap_Create, w, h, 0);
	if (!bitmap) {
		P(FPDF_ClosePage, page);
		failed(FAILED_MEMORY);
		return;
	}
	P(FPDFBitmap_FillRect, bitmap, 0, 0, w, h, 0xFFFFFFFF);
	const u32 annotations = 0x01, reverseByteOrder = 0x10; // fpdfview.h: FPDF_ANNOT, FPDF_REVERSE_BYTE_ORDER (RGBA)
	P(FPDF_RenderPageBitmap, bitmap, page, 0, 0, w, h, 0, annotations | reverseByteOrder);
	u32 pixels = P(FPDFBitmap_GetBuffer, bitmap), stride = P(FPDFBitmap_GetStride, bitmap);
	if ((u64)stride < 4ull * w || !inside(pixels, (u64)stride * h)) _exit(EXIT_TRAP);
	for (u32 y = 0; y < h; y++) {
		for (u32 from = 0, all = 4 * w; from < all;) {
			u32 part = all - from < PAYLOAD ? all - from : PAYLOAD;
			begin(F_PIXELS), put(MEM(pixels + y * stride + from), part), end();
			from += part;
		}
	}
	P(FPDFBitmap_Destroy, bitmap);
	P(FPDF_ClosePage, page);
}

static void openDocument(const struct request *r, const u8 *password) {
	documentBytes = r->a | (u64)r->b << 32;
	askForBytes = r->c == 1;
	u32 param = P(malloc, 4);
	if (!param) _exit(EXIT_MEMORY);
	store32(param, 0);
	u32 access = P(FPDF_FILEACCESS_Create, r->a, param);
	scratch = P(malloc, SCRATCH + BATCH);
	if (!access || !scratch) _exit(EXIT_MEMORY);
	batch = scratch + SCRATCH;
	memcpy(MEM(scratch), password, r->length);
	store32(scratch + r->length, 0);
	document = P(FPDF_LoadCustomDocument, access, r->length ? scratch : 0);
	if (!document) {
		failed(P(FPDF_GetLastError));
		return;
	}
	pageCount = P(FPDF_GetPageCount, document);
	begin(F_OPENED), put32(pageCount), end();
}

static void answer(const struct request *r, const u8 *behind) {
	objectCount = truncated = 0;
	if ((document != 0) != (r->op != OP_OPEN)) _exit(EXIT_PROTOCOL);
	switch (r->op) {
	case OP_OPEN:
		openDocument(r, behind);
		break;
	case OP_PAGE:
		page(r->a);
		break;
	case OP_SIZE:
		if (!P(FPDF_GetPageSizeByIndexF, document, r->a, scratch)) failed(FAILED_PAGE);
		else begin(F_POINTS), put(MEM(scratch), 8), end();
		break;
	case OP_LABEL:
		label(r->a);
		break;
	case OP_META: {
		u32 key = scratch + SCRATCH - 64; // text16 writes below it
		if (r->length > 63) _exit(EXIT_PROTOCOL);
		memcpy(MEM(key), behind, r->length);
		*MEM(key + r->length) = 0;
		u32 n = text16(P(FPDF_GetMetaText, document, key, scratch, SCRATCH - 64));
		begin(F_TEXT), putText(n), end();
		break;
	}
	case OP_OUTLINE: {
		u32 count = 0;
		memset(seen, 0, sizeof seen);
		seenCount = 0;
		marks(0, 1, r->a, r->b, &count);
		break;
	}
	case OP_RENDER:
		render(r->a, r->b, r->c);
		break;
	case OP_PLACE:
		place(r->a, behind, r->length / 4);
		break;
	default:
		_exit(EXIT_PROTOCOL);
	}
	begin(F_END), put32(I.w2c_memory.pages), put32(objectCount), put32(truncated), end(), flush();
}

// ---- Start. ----

// Of the kernel's headers, which musl does not bring: linux/filter.h, linux/seccomp.h, linux/audit.h.
struct sock_filter { u16 code; u8 jt, jf; u32 k; };
struct sock_fprog { u16 len; struct sock_filter *filter; };
struct seccomp_data { s32 nr; u32 arch; u64 instruction, args[6]; };
#define BPF_STMT(code, k) {code, 0, 0, k}
#define BPF_JUMP(code, k, jt, jf) {code, jt, jf, k}
enum { BPF_LD = 0x00, BPF_W = 0x00, BPF_ABS = 0x20, BPF_JMP = 0x05, BPF_JEQ = 0x10, BPF_K = 0x00, BPF_RET = 0x06 };
#define SECCOMP_MODE_FILTER 2
#define SECCOMP_RET_ALLOW 0x7fff0000u
#define SECCOMP_RET_KILL_PROCESS 0x80000000u
#ifdef __x86_64__
#define ARCH 0xC000003Eu
#else
#define ARCH 0xC00000B7u
#endif

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define ARGUMENT(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n])) // its lower half
// A call whose first argument is that descriptor.
#define ALLOW_ON(call, fd) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 4), ARGUMENT(0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, fd, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

// confine leaves the system calls that answering needs: any other ends the
// process. It returns 0 where the kernel has no such filter.
static u32 confine(void) {
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW_ON(read, 0),
		ALLOW_ON(write, 1),
		ALLOW_ON(pread64, 3),
		ALLOW(exit_group),
		ALLOW(exit),
		// Memory may grow, and become no code.
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
		ARGUMENT(2),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_READ | PROT_WRITE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof f / sizeof *f, f};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int argc, char **argv) {
	if (argc != 2 || strcmp(argv[1], "serve")) {
		printf("sheaf-pdfium reads PDFs for sheaf, which starts it by itself. Protocol %d, PDFium %s.\n", PROTOCOL, MODULE_SHA256);
		return argc == 1 || !strcmp(argv[1], "--version") ? EXIT_DONE : EXIT_USAGE;
	}
#ifdef SYS_close_range
	if (syscall(SYS_close_range, 4, ~0u, 0))
#endif
		for (int fd = 4; fd < 1024; fd++) close(fd);
	Z_pdfium_init_module();
	registerTypes();
	Z_pdfium_instantiate(&I, 0, 0);
	P(_initialize);
	P(FPDF_InitLibrary);
	begin(F_HELLO), put32(PROTOCOL), put32(confine()), put(MODULE_SHA256, 64), end(), flush();
	for (;;) {
		struct request r;
		static u8 behind[SCRATCH];
		take(&r, sizeof r, 1);
		if (r.length > SCRATCH - 4) _exit(EXIT_PROTOCOL);
		take(behind, r.length, 0);
		I.w2c_memory.max_pages = r.pages;
		answer(&r, behind);
	}
}
