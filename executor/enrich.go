package executor

import (
	"context"
	"slices"

	"sheaf"
	"sheaf/internal/enrich"
	"sheaf/internal/settings"
	"sheaf/internal/worker"
	"sheaf/taskstore"
)

// enrichChunks adds language, keywords, questions and context, as the settings ask.
// Values that the live generation has for the same text are reused, so that a change
// costs a language model only the changed text. Keywords that no model provided are
// derived by counting.
func (e *Executor) enrichChunks(ctx context.Context, run *run, doc *sheaf.Document, chunks []sheaf.Chunk, c sheaf.ParseConfig) (warnings []sheaf.Warning, err error) {
	if err := enrich.Languages(ctx, chunks); err != nil {
		return nil, err
	}
	if c.AutoKeywords.V < 1 && settings.NeedsChat(c) == "" {
		return nil, nil
	}
	err = run.stage(ctx, "enrich", func(ctx context.Context) error {
		have := e.enrichedBefore(ctx, run.task, doc, chunks, c)
		switch {
		case e.model != nil:
			if slices.Contains(have, false) {
				worker.Yield(ctx) // answers take seconds, during which nothing is done here
			}
			warnings, err = e.model.Chunks(ctx, chunks, doc.Name, c, func(i int) bool { return have[i] })
		case settings.NeedsChat(c) != "":
			warnings = append(warnings, sheaf.Warning{Code: "no_chat_model", Message: settings.NeedsChat(c) + " needs a chat model: set chat.url and chat.model on every executor and parse the document again."})
		}
		return err
	})
	if err == nil {
		err = enrich.CountedKeywords(ctx, chunks, c.AutoKeywords.V)
	}
	return warnings, err
}

// tagChunks gives chunks the tags of the nearest rows of the tag set.
func (e *Executor) tagChunks(ctx context.Context, run *run, chunks []sheaf.Chunk, vectors [][]float32, p *taskstore.ParsePayload) error {
	if len(p.TagSet) == 0 || len(chunks) == 0 {
		return nil
	}
	return run.stage(ctx, "tag", func(ctx context.Context) error {
		set, err := e.tags.Load(ctx, p.TagSet)
		if err != nil {
			return err
		}
		return set.Tag(ctx, chunks, vectors, p.Config.TopNTags.V)
	})
}
