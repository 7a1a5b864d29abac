package flow

// parse reads a document. The executor does it, by these settings, as it does without a
// flow.
var _ = register(Kind{Name: "parse", Doc: "parses the document", Out: Units, Config: map[string]Field{
	"ocr_pictures": {Type: "bool", Doc: "run OCR on images in documents"},
	"pii":          {Type: "string", Values: []string{"none", "find", "redact"}, Doc: "personal data in the text: count it, or redact it before anything is stored"},
}})
