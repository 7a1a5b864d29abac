package taskstore

import "sheaf"

// TagAttribute is the document attribute that lists can be filtered by: a word or a
// few, such as the name of a folder.
const TagAttribute = "sheaf.tag"

// Facet is a value with its number of documents.
type Facet struct {
	Value     string `json:"value" doc:"as filters take it"`
	Name      string `json:"name,omitempty" doc:"what people call it, where the value is an id"`
	Documents int    `json:"documents" doc:"how many have it"`
}

// Issue is a failure code with its documents.
type Issue struct {
	Code      string        `json:"code"`
	Documents int           `json:"documents" doc:"how many failed with it, as a whole or in part"`
	Failed    int           `json:"failed" doc:"of these, the ones of which nothing can be searched"`
	Sample    sheaf.Failure `json:"sample" doc:"of the oldest of them"`
	Document  string        `json:"document_id" doc:"of the oldest of them"`
	Name      string        `json:"document" doc:"its name"`
}

// Facets counts documents by the values they can be filtered by. Each list ignores
// the filter's condition on its own values: it shows what choosing another value
// would find. A list has at most MaxFacets values, those with the most documents;
// for jobs, the newest.
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
