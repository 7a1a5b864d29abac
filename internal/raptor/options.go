package raptor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sheaf"
)

// Scopes of a run.
const (
	ScopeFile    = "file"
	ScopeDataset = "dataset"
)

// Options are the options of a run, under RAGFlow's names.
type Options struct {
	// Prompt asks for a summary of the texts inserted for {cluster_content}.
	Prompt              string  `json:"prompt"`
	MaxToken            int     `json:"max_token"`            // of a summary
	ClusteringThreshold float64 `json:"clustering_threshold"` // Config.Threshold
	ClusteringRatio     float64 `json:"clustering_ratio"`     // Config.Ratio
	MaxCluster          int     `json:"max_cluster"`          // Config.MaxChildren
	RandomSeed          int64   `json:"random_seed"`          // of Clusters
	Scope               string  `json:"scope"`                // ScopeDataset also builds layers above the documents
	// Structured documents, such as spreadsheets, are skipped.
	AutoDisable bool `json:"auto_disable_for_structured_data"`
}

// Content is the placeholder for the texts in a prompt.
const Content = "{cluster_content}"

// DefaultPrompt is the prompt of a run without one.
const DefaultPrompt = "Sum up the following passages in a few sentences, and keep their numbers:\n" + Content

// Defaults are RAGFlow's.
func Defaults() Options {
	return Options{Prompt: DefaultPrompt, MaxToken: 512, ClusteringThreshold: 0.3, ClusteringRatio: 0.5, MaxCluster: 64, Scope: ScopeFile, AutoDisable: true}
}

// ReadOptions reads options as JSON, with defaults for missing ones. nil means the
// defaults. Errors are sheaf.ErrInvalid.
func ReadOptions(data []byte) (Options, error) {
	o := Defaults()
	if len(bytes.TrimSpace(data)) == 0 {
		return o, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("%w: the options of the run: %s", sheaf.ErrInvalid, strings.TrimPrefix(err.Error(), "json: "))
	}
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{len(o.Prompt) > 8<<10, "prompt has more than 8 KB"},
		{!strings.Contains(o.Prompt, Content), "prompt must hold " + Content + ", where the passages are put"},
		{o.MaxToken < 64 || o.MaxToken > 2048, "max_token must be 64 to 2048"},
		{!(o.ClusteringThreshold >= 0 && o.ClusteringThreshold <= 1), "clustering_threshold must be 0 to 1"},
		{!(o.ClusteringRatio > 0 && o.ClusteringRatio <= 0.5), "clustering_ratio must be above 0 and at most 0.5"},
		{o.MaxCluster < 2 || o.MaxCluster > 1024, "max_cluster must be 2 to 1024"},
		{o.Scope != ScopeFile && o.Scope != ScopeDataset, "scope must be file or dataset"},
	} {
		if c.bad {
			return o, fmt.Errorf("%w: %s", sheaf.ErrInvalid, c.text)
		}
	}
	return o, nil
}

// Layers returns the segment limits set by the options, for summaries of up to
// MaxToken. salt goes into names, in addition to the options.
func (o Options) Layers(salt string) Config {
	b, _ := json.Marshal([]any{o.Prompt, o.MaxToken, salt}) // strings and numbers always encode
	return Config{MaxChildren: o.MaxCluster, Ratio: o.ClusteringRatio, Threshold: o.ClusteringThreshold, Salt: string(b)}
}
