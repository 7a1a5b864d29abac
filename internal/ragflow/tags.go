package ragflow

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sheaf"
)

// tagCount is a tag and the number of chunks with it.
type tagCount struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// tagCounts counts the tags in all chunks of datasets, most frequent first.
func (c *call) tagCounts(datasets []*dataset) ([]tagCount, error) {
	counts := map[string]int{}
	err := c.eachTagged(datasets, func(_ *document, tags []string, _ *chunk) error {
		for _, t := range tags {
			counts[t]++
		}
		return nil
	})
	out := []tagCount{}
	for value, n := range counts {
		out = append(out, tagCount{value, n})
	}
	slices.SortFunc(out, func(a, b tagCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value)) })
	return out, err
}

// eachTagged calls each for the tagged chunks of datasets.
func (c *call) eachTagged(datasets []*dataset, each func(d *document, tags []string, k *chunk) error) error {
	for _, ds := range datasets {
		docs, err := c.documents(ds.ID, url.Values{"state": {
			string(sheaf.DocQueued), string(sheaf.DocRunning), string(sheaf.DocFinalizing), string(sheaf.DocSucceeded), string(sheaf.DocPartiallySucceeded), string(sheaf.DocFailed), string(sheaf.DocCanceling), string(sheaf.DocCanceled),
		}})
		if err != nil {
			return err
		}
		for _, d := range docs {
			d.dataset = ds
			all, err := c.chunks(d)
			if err != nil {
				return err
			}
			for _, k := range all {
				if tags := d.tags(&k.Chunk); len(tags) > 0 {
					if err := each(d, tags, k); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func listTags(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	counts, err := c.tagCounts([]*dataset{ds})
	return &answer{data: counts}, err
}

// aggregatedTags counts the tags of several datasets together.
func aggregatedTags(c *call) (*answer, error) {
	ids, _ := unique(listed(c.r.URL.Query()["dataset_ids"]))
	if len(ids) == 0 {
		return nil, refuse(codeArgument, "dataset_ids is required")
	}
	var datasets []*dataset
	for _, id := range ids {
		ds, err := c.dataset(id)
		if missing(err) {
			err = c.noPermission(id)
		}
		if err != nil {
			return nil, err
		}
		datasets = append(datasets, ds)
	}
	counts, err := c.tagCounts(datasets)
	return &answer{data: counts}, err
}

func deleteTags(c *call) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f := &faults{}
	var tags []string
	if v, ok := in["tags"]; !ok {
		f.add("tags", "Field required", in)
	} else if tags, ok = f.strings("tags", v); ok {
		if len(tags) == 0 {
			f.add("tags", "List should have at least 1 item after validation, not 0", v)
		}
		for _, t := range tags {
			if strings.TrimSpace(t) == "" {
				f.add("tags", "String should have at least 1 character", v)
				break
			}
		}
	}
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	return c.retag(func(t sheaf.Tag) (sheaf.Tag, bool) { return t, !slices.Contains(tags, t.Name) })
}

func renameTag(c *call) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f, names := &faults{}, map[string]string{}
	for _, key := range []string{"from_tag", "to_tag"} {
		v, ok := in[key]
		if !ok {
			f.add(key, "Field required", in)
			continue
		}
		if s, text := v.(string); text {
			v = strings.TrimSpace(s)
		}
		names[key], _ = f.str(key, v, 1, 0)
	}
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	return c.retag(func(t sheaf.Tag) (sheaf.Tag, bool) {
		if t.Name == names["from_tag"] {
			t.Name = names["to_tag"]
		}
		return t, true
	})
}

// retag changes the tags of all chunks of a dataset. Documents with too many edits
// for it are detected before anything is changed.
func (c *call) retag(to func(sheaf.Tag) (t sheaf.Tag, keep bool)) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	type change struct {
		d    *document
		id   string
		tags []sheaf.Tag
	}
	var changes []change
	there, ids, order := map[string]map[string]*chunk{}, map[string][]string{}, []*document{}
	err = c.eachTagged([]*dataset{ds}, func(d *document, names []string, k *chunk) error {
		tags, differs := []sheaf.Tag{}, false
		for _, name := range names {
			t := sheaf.Tag{Name: name, Weight: 1}
			if i := slices.IndexFunc(k.Tags, func(t sheaf.Tag) bool { return t.Name == name }); i >= 0 {
				t = k.Tags[i]
			}
			now, keep := to(t)
			differs = differs || !keep || now.Name != t.Name
			if keep && !slices.ContainsFunc(tags, func(o sheaf.Tag) bool { return o.Name == now.Name }) {
				tags = append(tags, now)
			}
		}
		if !differs {
			return nil
		}
		if there[d.ID] == nil {
			there[d.ID] = map[string]*chunk{}
			order = append(order, d)
		}
		there[d.ID][k.ID] = k
		ids[d.ID] = append(ids[d.ID], k.ID)
		changes = append(changes, change{d, k.ID, tags})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range order {
		if err := c.mayEdit(d, there[d.ID], ids[d.ID]); err != nil {
			return nil, err
		}
	}
	for _, ch := range changes {
		err := c.Call(c.ctx, http.MethodPatch, c.chunksPath(ch.d, ch.id), object{"tags": ch.tags}, nil)
		if missing(err) { // by a concurrent request
			continue
		}
		if err == nil {
			err = c.dropTags(ch.d, ch.id)
		}
		if err != nil {
			return nil, err
		}
	}
	return &answer{data: true}, nil
}
