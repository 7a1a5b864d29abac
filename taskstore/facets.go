package taskstore

import "sheaf"

// TagAttribute is the document attribute that lists can be filtered by: a word or a
// few, such as the name of a folder.
const TagAttribute = "sheaf.tag"

// Facet is a value with its number of documents.
type Facet struct {
	Value     string `json:"value" doc:"value for filters"`
	Name      string `json:"name,omitempty" doc:"name, if the value is an id"`
	Documents int    `json:"documents" doc:"documents with the value"`
}

// Issue is a failure code with its documents.
type Issue struct {
	Code      string        `json:"code"`
	Documents int           `json:"documents" doc:"documents that failed with it, entirely or in part"`
	Failed    int           `json:"failed" doc:"of these, documents with nothing searchable"`
	Sample    sheaf.Failure `json:"sample" doc:"of the oldest one"`
	Document  string        `json:"document_id" doc:"of the oldest one"`
	Name      string        `json:"document" doc:"name of that document"`
}

// Notice is a warning code with its documents.
type Notice struct {
	Code      string        `json:"code"`
	Documents int           `json:"documents" doc:"documents with such a warning"`
	Sample    sheaf.Warning `json:"sample" doc:"of the oldest one"`
	Document  string        `json:"document_id" doc:"of the oldest one"`
	Name      string        `json:"document" doc:"name of that document"`
}

// Facets counts documents by the values they can be filtered by. Each list ignores
// the filter's condition on its own values: it shows what choosing another value
// would find. A list has at most MaxFacets values, those with the most documents;
// for jobs, the newest.
type Facets struct {
	Documents int      `json:"documents" doc:"documents selected by the whole filter"`
	Ended     int      `json:"ended_last_minute" doc:"documents that ended within the last minute without being canceled, by the rest of the filter"`
	States    []Facet  `json:"state" nullable:"false"`
	Formats   []Facet  `json:"media_type" nullable:"false"`
	Issues    []Issue  `json:"failure_code" nullable:"false" doc:"failure codes of documents; the first failure of each document counts"`
	Warnings  []Notice `json:"warning" nullable:"false" doc:"warning codes of documents; a document counts for each of its codes"`
	Jobs      []Facet  `json:"job" nullable:"false" doc:"jobs that processed the documents last"`
	Languages []Facet  `json:"language" nullable:"false" doc:"languages in the documents' metadata"`
	Tags      []Facet  `json:"tag" nullable:"false" doc:"values of the attribute sheaf.tag"`
}

// MaxFacets bounds the values of one list.
const MaxFacets = 50
