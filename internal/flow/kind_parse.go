package flow

// parse reads a document. The executor does this, with these settings, as it does
// without a flow.
var _ = register(Kind{Name: "parse", Doc: "reads the document", Out: Units, Config: map[string]Field{
	"ocr_pictures": {Type: "bool", Doc: "read the text in pictures of documents"},
	"pii":          {Type: "string", Values: []string{"none", "find", "redact"}, Doc: "personal data in the text: count it, or replace it before anything is stored"},
}})
