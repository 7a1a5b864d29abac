package taskstore

import "sheaf"

// TagAttribute is the attribute of a document that lists are narrowed by: one
// word or a few, such as the name of a folder.
const TagAttribute = "sheaf.tag"

// Facet is a value that documents have.
type Facet struct {
	Value     string `json:"value" doc:"as filters take it"`
	Name      string `json:"name,omitempty" doc:"what people call it, where the value is an id"`
	Documents int    `json:"documents" doc:"how many have it"`
}

// Issue is what documents failed with.
type Issue struct {
	Code      string        `json:"code"`
	Documents int           `json:"documents" doc:"how many failed with it, as a whole or in part"`
	Failed    int           `json:"failed" doc:"of these, the ones of which nothing can be searched"`
	Sample    sheaf.Failure `json:"sample" doc:"of the oldest of them"`
	Document  string        `json:"document_id" doc:"of the oldest of them"`
	Name      string        `json:"document" doc:"its name"`
}

// Facets counts documents by what they can be narrowed by. Each list leaves out
// the condition that the filter has on its own values: it says what choosing
// another one would find. A list holds at most MaxFacets values, those of most
// documents; of jobs the newest.
type Facets struct {
	Documents int     `json:"documents" doc:"that the whole filter selects"`
	Ended     int     `json:"ended_last_minute" doc:"documents that ended within the last minute and were not canceled, by the rest of the filter"`
	States    []Facet `json:"state" nullable:"false"`
	Formats   []Facet `json:"media_type" nullable:"false"`
	Issues    []Issue `json:"failure_code" nullable:"false" doc:"what documents failed with; of several failures the first of a document counts"`
	Jobs      []Facet `json:"job" nullable:"false" doc:"that worked on the documents last"`
	Languages []Facet `json:"language" nullable:"false" doc:"that the documents say they are in, in their metadata"`
	Tags      []Facet `json:"tag" nullable:"false" doc:"of the attribute sheaf.tag"`
}

// MaxFacets bounds the values of one list.
const MaxFacets = 50
