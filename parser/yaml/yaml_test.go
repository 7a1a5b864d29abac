package yaml

import (
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry { return parser.NewRegistry(New(registry), text.New()) }

var options = parser.Options{Name: "document.yaml", MediaType: mediaType}

const sample = `# The pump of the north field.
name: pump
power: 12 kW
limits: &limits
  # in bar
  pressure: 4
  flow: [1, 2, 3]
spare:
  <<: *limits
  flow: 7
stations:
  - name: one
    town: Ahaus
  - name: two
`

const cluster = `apiVersion: v1
kind: Service
metadata:
  name: web
---
# the second
apiVersion: v1
kind: Deployment
metadata: {name: db}
spec:
  replicas: 2
---
plain
`

func TestGolden(t *testing.T) {
	long := "service:\n  image: one\n  environment:\n" + strings.Repeat("    KEY: some value that is long enough\n", 30) + "  ports:\n    - 80\nlast: true\n"
	for name, content := range map[string]string{"sample": sample, "cluster": cluster, "long": strings.Replace(long, "KEY", "KEY1", 1)} {
		t.Run(name, func(t *testing.T) {
			plan, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
			if err != nil {
				t.Fatal(err)
			}
			formattest.Golden(t, name, plan, units)
		})
	}
}

// joined is the text of all code, without white space.
func joined(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		for _, k := range u.Blocks {
			if k.Kind != sheaf.BlockHeading {
				b.WriteString(k.Text)
			}
		}
	}
	return strings.Join(strings.Fields(b.String()), "")
}

func TestEveryLineIsKept(t *testing.T) {
	for _, content := range []string{sample, cluster, "a:\n" + strings.Repeat("  - b: c\n    d: e\n", 2000), "|\n  text\n\n  more\n", "[1, {a: b}]\n", "? [a, b]\n: c\n? d\n"} {
		_, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		want := strings.Join(strings.Fields(content), "")
		if got := joined(units); err != nil || strings.ReplaceAll(got, "---", "") != strings.ReplaceAll(want, "---", "") {
			t.Errorf("%.60q: %.200q %v", content, got, err)
		}
	}
}

func TestWhatIsNoYAMLIsReadAsText(t *testing.T) {
	for _, content := range []string{"a: {{ .Values.name }}\n{{- if b }}\n", "a: b: c\n", "a: *unknown\n", strings.Repeat("[", 2000), "\tx: y\n  - z"} {
		plan, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "invalid_yaml" || len(units[0].Blocks) == 0 {
			t.Errorf("%.30q: %+v %v", content, plan, err)
		}
	}
}

func TestLargeFilesAreReadAsText(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), []byte(strings.Repeat("key: value\n", maxFileBytes/11+1)), options, nil)
	if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "read_as_text" || plan.Units < 2 || units[0].Blocks[0].Lang != "yaml" {
		t.Errorf("%+v %v", plan, err)
	}
}

func TestHostileFilesEndSoon(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+p+", ", 9), ", ") + "]\n"
	}
	var deep strings.Builder
	for i := range 900 {
		deep.WriteString(strings.Repeat(" ", i) + "k:\n")
	}
	start := time.Now()
	for name, content := range map[string]string{
		"aliases": bomb, "itself": "a: &a\n  b: *a\n", "deep": deep.String(), "documents": strings.Repeat("---\na: 1\n", 3000),
		"comments": strings.Repeat("# c\n", 50_000) + "a: 1\n", "keys": "a:\n" + strings.Repeat("  k: v\n", 50_000), "long line": "a: " + strings.Repeat("x", 1<<20),
	} {
		_, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := joined(units); len(got) > len(content)+1 {
			t.Errorf("%s: %d bytes became %d", name, len(content), len(got))
		}
	}
	if d := time.Since(start); d > time.Minute { // a second, where nothing grows with the square
		t.Errorf("%v", d)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{sample, cluster, "a: |\n  b\n", "- &x [*x]\n", "%YAML 1.2\n---\n!!map {a: b}\n..."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
