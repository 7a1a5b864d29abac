package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/artifact"
	"sheaf/internal/config"
	"sheaf/internal/embed"
	"sheaf/internal/embed/batch"
	"sheaf/internal/embed/limit"
	"sheaf/internal/embed/local"
	"sheaf/internal/embed/openai"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/elastic"
	"sheaf/internal/index/embedded"
	"sheaf/internal/indexset"
	"sheaf/internal/models"
)

// openIndexes opens the configured embedder, the index being searched, and the one
// being filled beside it.
func (a *app) openIndexes(ctx context.Context, r roles) error {
	e, err := withPreset(a.cfg.Embed)
	if err != nil {
		return fmt.Errorf("reading embed.preset: %w", err)
	}
	configured, err := a.openEmbedder(ctx, e, "", "embed.api_key")
	if err != nil {
		return fmt.Errorf("opening the %s embedder: %w", e.Driver, err)
	}
	space := indexset.Space{Model: configured.Model(), Driver: e.Driver}
	if e.Driver != "static" {
		space.URL, space.Name, space.QueryPrefix, space.PassagePrefix = e.URL, e.Model, e.QueryPrefix, e.PassagePrefix
	}
	cfg := indexset.Config{
		Store: a.store, Blobs: a.blobs, Log: a.log, Configured: space, Embedder: configured,
		OpenIndex: a.openIndex, OpenEmbedder: a.openPrevious, Text: executor.EmbeddingText, Keeps: a.cfg.Sole() || r.keeper || r == roles{},
		DedicatedFrom: a.cfg.Index.DedicatedFrom, PerMillionTokens: a.cfg.Price.PerMillionTokens, Currency: a.cfg.Price.Currency,
	}
	if a.cfg.Index.Driver == "embedded" {
		cfg.Found = a.foundIndex(ctx)
		cfg.Remove = func(s indexset.Space) error { return embedded.Remove(a.indexPath(s)) }
	}
	if a.main.IndexesFunc != nil {
		a.main.IndexesFunc(&cfg)
	}
	if a.index, err = indexset.Open(ctx, cfg); err != nil {
		return fmt.Errorf("opening the %s index: %w", a.cfg.Index.Driver, err)
	}
	a.onClose(a.index.Close)
	a.embedder = a.index.Following()
	return nil
}

// openEmbedder opens an embedder. id is the name of its vector space, "" for the
// model's own; key is the setting that holds its key.
func (a *app) openEmbedder(ctx context.Context, e config.Embed, id, key string) (inner embed.Embedder, err error) {
	switch e.Driver {
	case "static":
		return static.Default(), nil
	case "local":
		if inner, err = a.openLocal(ctx, &e); err != nil {
			return nil, err
		}
	default:
		if inner, err = openai.Open(ctx, openai.Config{
			BaseURL: e.URL, Model: e.Model, ID: id, Dimensions: e.Dim, APIKey: e.APIKey.Reveal(), Key: a.cfg.Live(key), Weight: max(e.Weight, 0), Floor: e.Floor,
			QueryPrefix: e.QueryPrefix, PassagePrefix: e.PassagePrefix, MaxTexts: e.Batch, Timeout: time.Duration(e.Timeout),
			Window: e.LateWindow,
		}); err != nil {
			return nil, err
		}
	}
	shared := batch.New(limit.Wrap(inner, limit.Config{Max: e.Concurrency}), batch.Config{MaxTexts: e.Batch, Concurrency: e.Concurrency})
	a.onClose(func() error { shared.Close(); return nil })
	return shared, nil
}

// openLocal starts the program that runs an installed model, and sets its best
// batch size unless one is configured.
func (a *app) openLocal(ctx context.Context, e *config.Embed) (embed.Embedder, error) {
	store := modelStore(a.cfg)
	m, err := store.Find(e.Model)
	if err != nil {
		return nil, err
	}
	if e.Weight >= 0 {
		m.Weight = e.Weight
	}
	m.Floor, e.Batch = cmp.Or(e.Floor, m.Floor), cmp.Or(e.Batch, 16)
	child, err := local.Open(ctx, local.Config{
		Store: store, Model: m, Program: e.Program, Threads: e.Threads, MemoryBytes: e.MemoryBytes,
		MaxTexts: e.Batch, Timeout: time.Duration(e.Timeout), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	a.onClose(func() error { child.Close(); return nil })
	return child, nil
}

// withPreset fills unset values with known settings of a common server.
func withPreset(e config.Embed) (config.Embed, error) {
	if e.Preset == "" {
		return e, nil
	}
	s, err := models.FindServer(e.Preset)
	if err != nil {
		return e, err
	}
	if e.URL = cmp.Or(e.URL, s.URL); e.URL == "" {
		return e, fmt.Errorf("%w: embed.url is empty; embed.preset = %s says nothing of where %s listens", sheaf.ErrInvalid, s.Name, s.What)
	}
	if e.Weight < 0 {
		e.Weight = s.Weight
	}
	// A different model or width is beyond the preset.
	if e.Model == "" || e.Model == s.Model {
		e.Dim = cmp.Or(e.Dim, s.Dim)
	}
	e.Model, e.Batch, e.Floor = cmp.Or(e.Model, s.Model), cmp.Or(e.Batch, s.Batch), cmp.Or(e.Floor, s.Floor)
	e.QueryPrefix, e.PassagePrefix = cmp.Or(e.QueryPrefix, s.QueryPrefix), cmp.Or(e.PassagePrefix, s.PassagePrefix)
	return e, nil
}

// openPrevious opens the embedder of a model that is no longer configured.
func (a *app) openPrevious(ctx context.Context, s indexset.Space) (embed.Embedder, error) {
	if s.Driver == "static" && static.Default().Model().ID == s.Model.ID {
		return static.Default(), nil
	}
	e, previous, key := a.cfg.Embed, a.cfg.Embed.Previous, "embed.previous.api_key"
	e.Driver, e.URL, e.Model = s.Driver, cmp.Or(previous.URL, s.URL), cmp.Or(previous.Model, s.Name)
	if e.Driver == "static" || e.Driver == "openai" && e.URL == "" || e.Model == "" {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "embedder_unknown",
			"The index holds vectors of %s and it is not known which server has that model: set embed.previous.url and embed.previous.model, or fill an index of the configured model: `sheaf index migrate start`.", s.Model.ID)
	}
	e.Dim, e.Weight, e.Floor, e.LateWindow, e.QueryPrefix, e.PassagePrefix = s.Model.Dim, s.Model.Weight, s.Model.Floor, s.Model.Window, s.QueryPrefix, s.PassagePrefix
	if previous.APIKey.Reveal() != "" || e.URL != a.cfg.Embed.URL {
		e.APIKey = previous.APIKey
	} else {
		key = "embed.api_key"
	}
	return a.openEmbedder(ctx, e, s.Model.ID, key)
}

// indexPath is the file of an embedded index.
func (a *app) indexPath(s indexset.Space) string {
	if s.Instance == 0 {
		return a.path("index.db")
	}
	return a.path(fmt.Sprintf("index-%d.db", s.Instance))
}

// foundIndex is the model of an existing embedded index.
func (a *app) foundIndex(ctx context.Context) *indexset.Space {
	id, dim := embedded.ModelOf(ctx, a.path("index.db"))
	if id == "" {
		return nil
	}
	s := &indexset.Space{Model: embed.Model{ID: id, Dim: dim, Weight: -1}, Driver: "openai"}
	if m := static.Default().Model(); m.ID == id {
		s.Model, s.Driver = m, "static"
	}
	return s
}

func (a *app) openIndex(ctx context.Context, s indexset.Space, owner string) (index.Index, error) {
	m, x := s.Model, a.cfg.Index
	if x.Driver == "embedded" {
		opened, err := embedded.Open(ctx, embedded.Config{Path: a.indexPath(s), ModelID: m.ID, Dim: m.Dim, Owner: owner, Existing: s.Made})
		if err != nil {
			return nil, err
		}
		return opened, nil
	}
	suffix := ""
	if s.Instance > 0 {
		suffix = fmt.Sprintf("-r%d", s.Instance)
	}
	opened, err := elastic.Open(ctx, elastic.Config{
		URLs: x.Addrs, Prefix: x.Prefix, Username: x.Username, Password: x.Password.Reveal(), APIKey: x.APIKey.Reveal(), CAFile: x.CAFile,
		Key: a.cfg.Live("index.api_key"), PasswordNow: a.cfg.Live("index.password"),
		ModelID: m.ID, Dim: m.Dim, Owner: owner, Suffix: suffix, Existing: s.Made, Shards: cmp.Or(s.Shards, x.Shards), ByDocument: s.Tenant != "", Replicas: x.Replicas, Retried: a.metrics.IndexRetried,
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// copies returns the keys of a result's copies with vectors of other models.
func (a *app) copies(key string) []string {
	models := a.index.Models()
	keys := make([]string, len(models))
	for i, m := range models {
		keys[i] = artifact.CopyKey(key, m)
	}
	return keys
}

// fillIndex runs pending index work to completion when no server does.
func (a *app) fillIndex(ctx context.Context, told func(*indexset.Status)) error {
	for {
		_, err := a.index.Step(ctx)
		if err != nil && !errors.Is(err, sheaf.ErrUnavailable) {
			return err
		}
		status, serr := a.index.Status(ctx)
		if serr != nil {
			return serr
		}
		told(status)
		m := status.Migration
		if m == nil || !m.Rebuild {
			return err
		}
		if err != nil {
			return err
		}
		if m.Phase == indexset.Refused {
			return fmt.Errorf("the new index was not taken: %s", m.Gate.Reason)
		}
	}
}
