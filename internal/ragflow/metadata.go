package ragflow

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metadataChange is one update or delete of a key.
type metadataChange struct {
	key          string
	value, match any
	valued       bool
}

// changeMetadata updates and deletes metadata of the selected documents.
func changeMetadata(c *call) (*answer, error) {
	ds, err := c.owned(c.path[0])
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	selector, ok := in["selector"].(object)
	if !ok && in["selector"] != nil {
		return nil, bad("selector must be an object.")
	}
	updates, okUpdates := in["updates"].([]any)
	deletes, okDeletes := in["deletes"].([]any)
	if !okUpdates && in["updates"] != nil || !okDeletes && in["deletes"] != nil {
		return nil, bad("updates and deletes must be lists.")
	}
	conditions, ok := selector["metadata_condition"].(object)
	if !ok && selector["metadata_condition"] != nil {
		return nil, bad("metadata_condition must be an object.")
	}
	list, ok := selector["document_ids"].([]any)
	if !ok && selector["document_ids"] != nil {
		return nil, bad("document_ids must be a list.")
	}
	sets, err := changesOf(updates, true)
	if err != nil {
		return nil, err
	}
	drops, err := changesOf(deletes, false)
	if err != nil {
		return nil, err
	}
	docs, err := c.selectedBy(ds, list, conditions)
	if err != nil {
		return nil, err
	}
	updated := 0
	for _, d := range docs {
		if !d.change(sets, drops) {
			continue
		}
		if err := c.keep(d, ""); err != nil {
			return nil, err
		}
		updated++
	}
	return &answer{data: object{"updated": updated, "matched_docs": len(docs)}}, nil
}

func changesOf(list []any, update bool) (out []metadataChange, err error) {
	for _, one := range list {
		m, _ := one.(object)
		key, _ := m["key"].(string)
		value, valued := m["value"]
		switch {
		case update && (key == "" || !valued):
			return nil, bad("Each update requires key and value.")
		case key == "":
			return nil, bad("Each delete requires key.")
		}
		out = append(out, metadataChange{key, value, m["match"], valued && value != nil})
	}
	return out, nil
}

// selectedBy returns the documents among the ids that match the conditions.
func (c *call) selectedBy(ds *dataset, list []any, conditions object) ([]*document, error) {
	var docs []*document
	if len(list) > 0 {
		ids, _ := unique(values(list))
		var unknown, hex []string
		for _, id := range ids {
			if h, ok := idOf(id); ok {
				hex = append(hex, h)
			} else {
				unknown = append(unknown, id)
			}
		}
		found, err := c.byID(ds, hex)
		if err != nil {
			return nil, err
		}
		for _, id := range hex {
			if found[id] == nil {
				unknown = append(unknown, id)
				continue
			}
			docs = append(docs, found[id])
		}
		if len(unknown) > 0 {
			return nil, bad("These documents do not belong to dataset %s: %s", c.path[0], strings.Join(unknown, ", "))
		}
	} else if len(conditions) > 0 {
		var err error
		if docs, err = c.documents(ds.ID, nil); err != nil {
			return nil, err
		}
	}
	if len(conditions) == 0 {
		return docs, nil
	}
	condition, err := readCondition(conditions)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(docs, func(d *document) bool { return !condition.holds(d) }), nil
}

// change applies updates and deletes to the metadata of a document, and reports
// whether anything changed.
func (d *document) change(sets, drops []metadataChange) bool {
	was := d.record.Meta
	meta := maps.Clone(was)
	if meta == nil {
		meta = object{}
	}
	for _, s := range sets {
		old, there := meta[s.key]
		list, many := old.([]any)
		switch {
		case s.match == nil:
			meta[s.key] = s.value
		case there && many:
			list = slices.Clone(list)
			for i := range list {
				if pyText(list[i]) == pyText(s.match) {
					list[i] = s.value
				}
			}
			meta[s.key] = list
		case there && pyText(old) == pyText(s.match):
			meta[s.key] = s.value
		}
	}
	for _, drop := range drops {
		old, there := meta[drop.key]
		list, many := old.([]any)
		switch {
		case !there:
		case !drop.valued:
			delete(meta, drop.key)
		case many:
			if left := slices.DeleteFunc(slices.Clone(list), func(v any) bool { return pyText(v) == pyText(drop.value) }); len(left) > 0 {
				meta[drop.key] = left
			} else {
				delete(meta, drop.key)
			}
		case pyText(old) == pyText(drop.value):
			delete(meta, drop.key)
		}
	}
	before, _ := json.Marshal(was)
	after, _ := json.Marshal(meta)
	d.record.Meta = meta
	return string(before) != string(after) && !(len(was) == 0 && len(meta) == 0)
}

// count is the number of occurrences of one value.
type count struct {
	value string
	n     int
}

func metadataSummary(c *call) (*answer, error) {
	ds, err := c.owned(c.path[0])
	if err != nil {
		return nil, err
	}
	docs, err := c.documents(ds.ID, nil)
	if err != nil {
		return nil, err
	}
	if ids := listed(c.r.URL.Query()["doc_ids"]); len(ids) > 0 {
		docs = slices.DeleteFunc(docs, func(d *document) bool { return !slices.Contains(ids, d.ID) })
	}
	counts, kinds := map[string]map[string]int{}, map[string]string{}
	for _, d := range docs {
		for key, v := range d.record.Meta {
			if counts[key] == nil {
				counts[key] = map[string]int{}
			}
			kind := kindOf(v)
			if was := kinds[key]; was != "" && was != kind {
				kind = "string"
			}
			kinds[key] = kind
			for _, one := range values(v) {
				counts[key][one]++
			}
		}
	}
	summary := object{}
	for key, of := range counts {
		var list []count
		for value, n := range of {
			list = append(list, count{value, n})
		}
		slices.SortFunc(list, func(a, b count) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.value, b.value)) })
		pairs := [][]any{}
		for _, one := range list {
			pairs = append(pairs, []any{one.value, one.n})
		}
		summary[key] = object{"type": kinds[key], "values": pairs}
	}
	return &answer{data: object{"summary": summary}}, nil
}

// kindOf is the type of a metadata value.
func kindOf(v any) string {
	switch v := v.(type) {
	case []any:
		return "list"
	case float64, json.Number:
		return "number"
	case string:
		for _, layout := range []string{time.RFC3339, time.DateOnly, time.DateTime, "2006-01-02T15:04:05"} {
			if _, err := time.Parse(layout, v); err == nil {
				return "time"
			}
		}
	}
	return "string"
}

func flattenedMetadata(c *call) (*answer, error) {
	ids := listed(c.r.URL.Query()["dataset_ids"])
	if len(ids) == 0 {
		return nil, bad("dataset_ids is required.")
	}
	out := map[string]map[string][]string{}
	for _, id := range ids {
		ds, err := c.owned(id)
		if err != nil {
			return nil, err
		}
		docs, err := c.documents(ds.ID, nil)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			for key, v := range d.record.Meta {
				if out[key] == nil {
					out[key] = map[string][]string{}
				}
				for _, one := range values(v) {
					out[key][one] = append(out[key][one], d.ID)
				}
			}
		}
	}
	return &answer{data: out}, nil
}

// metadataConfig returns a metadata configuration with null for absent fields.
func metadataConfig(m object) object {
	fields := []any{}
	list, _ := m["metadata"].([]any)
	for _, one := range list {
		f, _ := one.(object)
		fields = append(fields, object{"key": f["key"], "type": f["type"], "description": f["description"], "enum": f["enum"]})
	}
	builtIn, ok := m["built_in_metadata"].([]any)
	if !ok {
		builtIn = []any{}
	}
	return object{"metadata": fields, "built_in_metadata": builtIn}
}

func readMetadataConfig(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	return &answer{data: metadataConfig(ds.record.Metadata)}, nil
}

func changeMetadataConfig(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f := &faults{}
	for _, key := range []string{"metadata", "built_in_metadata"} {
		list, ok := in[key].([]any)
		if !ok && in[key] != nil {
			f.add(key, "Input should be a valid list", in[key])
		}
		for i, one := range list {
			at := key + "." + strconv.Itoa(i)
			m, ok := f.object(at, one)
			if !ok {
				continue
			}
			if _, ok := m["key"]; !ok {
				f.add(at+".key", "Field required", one)
			} else {
				f.str(at+".key", m["key"], 1, 255)
			}
			if v := m["type"]; v != nil {
				f.among(at+".type", v, []string{"string", "list", "time", "number"})
			}
		}
	}
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	ds.record.Metadata = in
	made, err := c.put(ds.ID, ds)
	if err != nil {
		return nil, err
	}
	return &answer{data: metadataConfig(made.record.Metadata)}, nil
}

func documentMetadataConfig(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	d, err := c.document(ds, c.path[1])
	if missing(err) {
		err = bad("document %s not found in dataset %s", c.path[1], c.path[0])
	}
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	v, ok := in["metadata"]
	if !ok {
		return nil, refuse(codeArgument, "metadata is required")
	}
	d.record.Config = laid(d.record.Config, object{"metadata": v})
	if err := c.keep(d, ""); err != nil {
		return nil, err
	}
	return &answer{data: c.shownDocument(d)}, nil
}
