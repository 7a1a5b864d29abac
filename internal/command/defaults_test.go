package command

import (
	"testing"

	"sheaf/executor"
	"sheaf/internal/config"
	"sheaf/internal/tagset"
	"sheaf/parser/archive"
	"sheaf/parser/formats"
)

// Packages have defaults of their own, so that they can be used without
// settings; docs/configuration.md states those of the settings. A user meets
// both, and they are the same.
func TestDefaultsOfSettingsAreThoseOfThePackages(t *testing.T) {
	cfg := config.Default()
	parts := optionalParts(cfg)
	if got, want := parts.Archive, archive.DefaultLimits; got != want {
		t.Errorf("an archive is bounded by %+v with the default settings, by %+v without", got, want)
	}
	own := formats.DefaultConfig
	if parts.Soffice != own.Soffice || parts.Tesseract != own.Tesseract || parts.OCRLanguages != own.OCRLanguages {
		t.Errorf("the default settings name other programs than %+v: %+v", own, parts)
	}
	planner := built(t, nil).planner
	if got, want := planner.Tree, executor.DefaultTree; got != want {
		t.Errorf("what an upload becomes is bounded by %+v with the default settings, by %+v without", got, want)
	}
	if got, want := planner.Tags, tagset.DefaultLimits; got != want {
		t.Errorf("tags are bounded by %+v with the default settings, by %+v without", got, want)
	}
}
