package graphs

import (
	"context"
	"fmt"

	"sheaf"
	"sheaf/internal/graph"
	"sheaf/taskstore"
)

// CheckSplit cleans names to be kept apart in the graph of a dataset, and checks
// that the graph knows each of them. Errors are sheaf.ErrInvalid and
// sheaf.ErrNotFound, with the remedy.
func (s *Service) CheckSplit(ctx context.Context, tenantID, datasetID string, names []string) ([]string, error) {
	if len(names) < 2 || len(names) > taskstore.MaxSplitNames {
		return nil, fmt.Errorf("%w: a split is of 2 to %d names; name the entities that are to be kept apart", sheaf.ErrInvalid, taskstore.MaxSplitNames)
	}
	clean := make([]string, len(names))
	var splits [][]string
	for i, name := range names {
		if len(name) > taskstore.MaxSplitName {
			return nil, fmt.Errorf("%w: name %d has %d bytes; the names of entities have at most %d", sheaf.ErrInvalid, i+1, len(name), taskstore.MaxSplitName)
		}
		if clean[i] = graph.Clean(name); graph.Key(name) == "" {
			return nil, fmt.Errorf("%w: name %d has no letter and no digit; write it as the chunks do", sheaf.ErrInvalid, i+1)
		}
		for _, other := range clean[:i] {
			splits = append(splits, []string{clean[i], other})
		}
	}
	for _, pair := range splits {
		if apart := graph.NewSplits([][]string{pair}); apart.Key(pair[0]) == apart.Key(pair[1]) {
			return nil, fmt.Errorf("%w: %s and %s are the same name; names that are kept apart differ by more than a possessive and punctuation", sheaf.ErrInvalid, pair[1], pair[0])
		}
	}
	v, err := s.View(ctx, tenantID, datasetID)
	if err != nil {
		return nil, err
	}
	apart := graph.NewSplits([][]string{clean})
	for _, name := range clean {
		at, err := find(v.Graph, name)
		if err != nil {
			return nil, err
		}
		if apart.Key(name) != graph.Key(name) && !v.Graph.Writes(at, name) {
			return nil, fmt.Errorf("%w: no chunk writes %s with these capitals; show the entity for the ways in which they do", sheaf.ErrNotFound, name)
		}
	}
	return clean, nil
}
