package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

// previewBatch is how many files one dry-run request carries.
const previewBatch = 100

// ingestOptions are the flags of `sheaf ingest`.
type ingestOptions struct {
	wait, dryRun, create bool
	lane                 []string
	config               string
	settings             []string
	notBefore            later
	name, job            string
	selection
}

// lanes are the lanes' names and numbers.
var lanes = []string{"interactive", "normal", "backfill", "1", "2", "3"}

func laneNumber(name string) string {
	return fmt.Sprint(slices.Index(lanes, name)%3 + 1)
}

func (g *global) ingestCommand() *cobra.Command {
	o := ingestOptions{lane: []string{"normal"}}
	cmd := &cobra.Command{
		Use: "ingest PATH…", Short: "Upload files, folders, addresses or standard input", SuggestFor: []string{"upload", "add", "put", "import"},
		Args: needs(1, -1, "a file, a folder, an address or - for standard input"),
		Long: `Uploads files, the files of folders, documents behind addresses and, as "-",
standard input, and follows them until they are searchable. Everything that one
command uploads is one job, or a few if there are more than 10,000 files.

Uploads resume after a dropped connection, also when the command was stopped:
run it again. Of folders, hidden files and links to folders are left out; links
to files are followed. The dataset "default" always exists; any other must exist
or be made with --create.

Files are read while others are being uploaded. Ctrl-C during the upload keeps
what is stored; Ctrl-C afterwards stops watching, and the server goes on. Ends with exit code 3 when some documents failed.`,
		Example: `  sheaf ingest ~/Documents                        # a folder with everything in it
  sheaf ingest -d contracts --create *.pdf        # into a new dataset
  sheaf ingest ~/Documents --include '*.pdf' --exclude drafts
  sheaf ingest https://example.org/report.pdf     # fetched by this machine
  pg_dump --schema-only app | sheaf ingest - --name schema.sql
  sheaf ingest --setting chunk_token_num=256 notes.md
  sheaf ingest --lane backfill --wait=false archive/
  sheaf ingest --not-before 22:00 archive/`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.ingest(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.wait, "wait", true, "show progress until the documents are searchable")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and change nothing")
	f.BoolVar(&o.create, "create", false, "create the dataset if it does not exist")
	f.Var(&choice{value: &o.lane, of: lanes}, "lane", "`LANE`: interactive, normal or backfill")
	f.StringVar(&o.config, "parser-config", "", "settings as `JSON`, such as '{\"chunk_token_num\": 256}'")
	f.StringArrayVar(&o.settings, "setting", nil, "one setting as `NAME=VALUE`, such as chunk_token_num=256; may be repeated")
	f.StringSliceVar(&o.include, "include", nil, "of folders, only files that match one of these `PATTERNS`, such as '*.pdf'")
	f.StringSliceVar(&o.exclude, "exclude", nil, "leave out files and folders that match one of these `PATTERNS`")
	f.StringVar(&o.name, "name", "", "`NAME` of the document that comes from standard input or an address")
	o.notBefore.flag(cmd, &o.wait)
	f.StringVar(&o.job, "job-name", "", "`NAME` of the job; without it, it is called by its first files")
	g.complete(cmd, "lane", oneOf("interactive", "normal", "backfill"))
	g.complete(cmd, "setting", settingAssignments)
	return cmd
}

func (g *global) ingest(ctx context.Context, o ingestOptions, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	fields := map[string]string{"lane": laneNumber(o.lane[0])}
	config, err := parserConfig(o.config, o.settings)
	if err != nil {
		return err
	}
	if config != "" {
		fields["parser_config"] = config
	}
	c, err := g.client()
	if err != nil {
		return err
	}
	some, err := g.collect(ctx, args, o.selection, o.name)
	if err != nil {
		return err
	}
	defer some.remove()
	if n := len(some.links); n > 0 {
		g.note("Left out %s to folders, such as %s: name a folder to ingest it.", count(n, "link"), some.links[0])
	}
	if len(some.files) == 0 && len(some.unread) == 0 {
		err := fmt.Errorf("there are no files under %s", strings.Join(args, ", "))
		if some.left > 0 {
			return usageError{cured(err, "%s left out, as hidden or by --include and --exclude.", count(some.left, "entry"))}
		}
		return usageError{err}
	}
	if err := c.ensureDataset(ctx, g, o.create, o.dryRun); err != nil {
		return err
	}
	if o.dryRun {
		return g.previewIngest(ctx, c, some, fields)
	}
	begun := time.Now()
	d, err := c.deliver(ctx, g.dataset, some.files, fields, o.job, o.notBefore.query(), g.bar())
	if err != nil {
		if isA[interrupted](context.Cause(ctx)) {
			return cured(errors.New("stopped while uploading"), "%s", d.waiting())
		}
		if troubleOf(ctx, err).Cure == "" {
			err = cured(err, "%s", d.waiting())
		}
		return err
	}
	if n := int(d.resumed.Load()); n > 0 {
		g.note("%s had been stored by an earlier run and not sent again.", count(n, "file"))
	}
	out := &ingested{Dataset: g.dataset, Jobs: d.jobs.answer, Rejected: append(d.rejected, d.jobs.refuse...), Unread: append(some.unread, d.unread...), page: c.base, flag: g.inDataset(), files: len(some.files) + len(some.unread), bytes: d.total, begun: begun}
	for _, j := range out.Jobs {
		if !j.NotBefore.IsZero() {
			g.note("Job %s begins at %s.", j.ID, moment(j.NotBefore))
		}
	}
	if o.wait && len(out.Jobs) > 0 {
		jobs, err := c.follow(ctx, out.ids(), g.bar())
		for i, j := range jobs {
			if j != nil {
				out.Jobs[i] = j
			}
		}
		if err != nil {
			return g.left(ctx, err, out.Jobs)
		}
	}
	if err := out.explain(ctx, c); err != nil {
		return err
	}
	if g.json {
		if err := g.printJSON(out); err != nil {
			return err
		}
	} else if !g.quiet {
		out.print(g.out, o.wait)
	}
	return out.err()
}

// submitTimeout bounds a submit.
const submitTimeout = 10 * time.Minute

// left says what continues on the server after the client stops watching.
func (g *global) left(ctx context.Context, err error, jobs []*sheaf.Job) error {
	sum := sumOf(jobs)
	id := jobs[0].ID
	which := "job " + id
	if len(jobs) > 1 {
		which = count(len(jobs), "job")
	}
	say := fmt.Sprintf("The server goes on with %s: %s of %s done.\nFollow it with `sheaf jobs %s --wait`, stop it with `sheaf jobs cancel %s`.", which, number(sum.over), count(sum.documents, "document"), id, id)
	if isA[interrupted](context.Cause(ctx)) {
		return cured(errors.New("stopped watching; everything is uploaded and submitted"), "%s", say)
	}
	return cured(err, "%s", say)
}

// parserConfig merges --parser-config and --setting.
func parserConfig(text string, assignments []string) (string, error) {
	config := map[string]any{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			return "", usageError{cured(fmt.Errorf("--parser-config is not a JSON object: %w", err), "Write it as '{\"chunk_token_num\": 256}', or use --setting chunk_token_num=256.")}
		}
	}
	for _, a := range assignments {
		name, value, err := assignment(a)
		if err != nil {
			return "", err
		}
		config[name] = value
	}
	for name := range config {
		if err := checkSetting(name); err != nil {
			return "", err
		}
	}
	if len(config) == 0 {
		return "", nil
	}
	b, err := json.Marshal(config)
	return string(b), err
}

// ensureDataset makes sure that the dataset exists. A mistyped name must not create
// one: only "default", --create or a user's confirmation does.
func (c *client) ensureDataset(ctx context.Context, g *global, create, dryRun bool) error {
	var ds sheaf.Dataset
	err := c.call(ctx, http.MethodGet, "/v1/datasets/"+url.PathEscape(g.dataset), nil, &ds)
	if err == nil || !isMissing(err) {
		return err
	}
	if !create && g.dataset != defaultDataset {
		missing := g.noDataset(ctx, c, g.dataset, err)
		if dryRun || !g.isTerminal(g.in) || g.json {
			return missing
		}
		fmt.Fprintln(g.err, troubleOf(ctx, missing).Message)
		if ok, err := g.yesNo("Create it?"); err != nil || !ok {
			return cmp.Or(err, errNotConfirmed)
		}
	}
	if dryRun {
		return cured(fmt.Errorf("there is no dataset %q yet", g.dataset), "Create it with `sheaf dataset create %s`; a dry run creates nothing.", quoted(g.dataset))
	}
	return c.call(ctx, http.MethodPost, "/v1/datasets", map[string]any{"name": g.dataset}, &ds)
}

// noDataset says that a dataset does not exist, and suggests the nearest name.
func (g *global) noDataset(ctx context.Context, c *client, name string, err error) error {
	e := &answerError{status: http.StatusNotFound, code: "not_found", msg: fmt.Sprintf("there is no dataset %q", name)}
	if a, ok := errors.AsType[*answerError](err); ok {
		e.requestID = a.requestID
	}
	var list api.List[sheaf.Dataset]
	if c.call(ctx, http.MethodGet, "/v1/datasets?limit=1000", nil, &list) == nil {
		var names []string
		for _, d := range list.Items {
			names = append(names, d.Name)
		}
		if near := api.Nearest(name, names); near != "" {
			return cured(e, "Did you mean -d %s? Otherwise `sheaf dataset create %s` creates it, and so does `sheaf ingest --create`.", quoted(near), quoted(name))
		}
	}
	return cured(e, "Create it with `sheaf dataset create %s` or `sheaf ingest --create`; `sheaf dataset list` lists those that exist.", quoted(name))
}

// previewIngest shows what an ingest would do.
func (g *global) previewIngest(ctx context.Context, c *client, some *collected, fields map[string]string) error {
	sum := api.SubmitAnswer{Documents: []sheaf.Document{}, Forecast: &ingest.Forecast{}}
	unread := some.unread
	var files []source
	for _, f := range some.files {
		r, err := f.open()
		if err != nil {
			unread = append(unread, unreadFile(f.path, err))
			continue
		}
		_ = r.Close()
		files = append(files, f)
	}
	for batch := range slices.Chunk(files, previewBatch) {
		answer, err := c.submitAnswer(ctx, g.dataset, batch, fields, "?dry_run=true")
		if a, ok := errors.AsType[*answerError](err); ok && len(batch) == 1 && (a.status == 413 || a.status == 415 || a.status == 422) {
			sum.Rejected = append(sum.Rejected, api.Rejected{Name: batch[0].name, Failure: sheaf.Failure{Code: a.code, Message: strings.TrimSuffix(a.msg, " ("+a.code+")")}})
			continue
		}
		if err != nil {
			return err
		}
		sum.Plans, sum.Rejected = append(sum.Plans, answer.Plans...), append(sum.Rejected, answer.Rejected...)
		if f := answer.Forecast; f != nil {
			sum.Forecast.Documents += f.Documents
			sum.Forecast.Planned += f.Planned
			sum.Forecast.Unplanned += f.Unplanned
			sum.Forecast.Units += f.Units
			sum.Forecast.Ranges += f.Ranges
			sum.Forecast.Reused.Ranges += f.Reused.Ranges
		}
	}
	if g.json {
		return g.printJSON(sum)
	}
	if err := g.table(func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tFORMAT\tUNITS\tRANGES\tREUSED\tNOTE")
		for _, p := range sum.Plans {
			note := ""
			if p.Failure != nil {
				note = excerpt(p.Failure.Message, 60)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", shortName(p.Name, 50), formatName(p.Parser, p.MediaType), units(p.Units, p.Unit), len(p.Ranges), p.Reused.Ranges, note)
		}
		for _, r := range sum.Rejected {
			fmt.Fprintf(w, "%s\t\t\t\t\trefused: %s\n", shortName(r.Name, 50), excerpt(r.Failure.Message, 60))
		}
		for _, u := range unread {
			fmt.Fprintf(w, "%s\t\t\t\t\tcannot be read: %s\n", shortName(u.Name, 50), u.Error)
		}
	}); err != nil {
		return err
	}
	fmt.Fprintf(g.out, "\nNothing was changed. %s would be ingested into %s.\n", count(len(sum.Plans), "document"), g.dataset)
	return nil
}

func unreadFile(name string, err error) unread { return unread{name, reason(err)} }

// units formats a document's unit count, or "" if it is not counted yet.
func units(n int, unit sheaf.Unit) string {
	if n == 0 || unit == "" {
		return ""
	}
	return count(n, string(unit))
}

// ingested is the outcome of an ingest.
type ingested struct {
	Dataset  string         `json:"dataset"`
	Jobs     []*sheaf.Job   `json:"jobs"`
	Rejected []api.Rejected `json:"rejected,omitempty"` // by the server, before they became documents
	Unread   []unread       `json:"unread,omitempty"`   // locally
	Failures []verdict      `json:"failures,omitempty"`
	Warnings []verdict      `json:"warnings,omitempty"`
	URL      string         `json:"url"` // of the web page that shows it

	page, flag string
	files      int
	bytes      int64
	begun      time.Time
	cut        bool // there are more failures or warnings than were read
}

// verdict is the code of a failure or a warning, and the documents that have it.
type verdict struct {
	Code      string   `json:"code"`
	Message   string   `json:"message"` // of the first
	Documents []string `json:"documents"`
}

func (o *ingested) ids() (ids []string) {
	for _, j := range o.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// byState sums the documents of all jobs.
func (o *ingested) byState() map[sheaf.DocumentState]int {
	sum := map[sheaf.DocumentState]int{}
	for _, j := range o.Jobs {
		for state, n := range j.Documents.ByState {
			sum[state] += n
		}
	}
	return sum
}

// mostErrors bounds the failures, and the documents with warnings, that are read of a
// job for a summary.
const mostErrors = 5000

// explain collects why documents failed and what was left out of others, each
// document once per code.
func (o *ingested) explain(ctx context.Context, c *client) error {
	o.URL = o.page + "/datasets/" + url.PathEscape(o.Dataset)
	if len(o.Jobs) == 1 {
		o.URL = o.page + "/jobs/" + o.Jobs[0].ID
	}
	var failures, warnings verdicts
	for _, r := range o.Rejected {
		failures.note(r.Failure.Code, r.Failure.Message, r.Name, r.Name+r.UploadID)
	}
	for _, j := range o.Jobs {
		path, oldest, most := "/v1/jobs/"+j.ID, url.Values{"order": {"oldest"}}, paging{limit: mostErrors}
		errs, more, err := pages[taskstore.JobError](ctx, c, path+"/errors", maps.Clone(oldest), most)
		if err != nil {
			return err
		}
		warned, moreWarned, err := pages[taskstore.JobWarnings](ctx, c, path+"/warnings", oldest, most)
		if err != nil {
			return err
		}
		o.cut = o.cut || more != nil || moreWarned != nil
		for _, e := range errs {
			name := e.Document
			if e.Failure.Page > 0 {
				name += fmt.Sprintf(", page %d", e.Failure.Page)
			}
			failures.note(e.Failure.Code, e.Failure.Message, name, e.DocumentID+fmt.Sprint(e.Failure.Page))
		}
		for _, d := range warned {
			for _, w := range d.Warnings {
				if w.Code != runningLines {
					warnings.note(w.Code, w.Message, d.Document, d.DocumentID)
				}
			}
		}
	}
	o.Failures, o.Warnings = failures.sorted(), warnings.sorted()
	return nil
}

// runningLines is the code of a warning that most long PDFs have, and nobody needs to
// act on.
const runningLines = "running_lines_removed"

// verdicts collects failures or warnings by code.
type verdicts struct {
	byCode map[string]*verdict
	seen   map[string]bool
}

// note adds a document to a code, once for each key.
func (v *verdicts) note(code, message, document, key string) {
	if v.byCode == nil {
		v.byCode, v.seen = map[string]*verdict{}, map[string]bool{}
	}
	if key = code + "\x00" + key; v.seen[key] {
		return
	}
	v.seen[key] = true
	if v.byCode[code] == nil {
		v.byCode[code] = &verdict{Code: code, Message: message}
	}
	v.byCode[code].Documents = append(v.byCode[code].Documents, document)
}

// sorted returns the codes, those of the most documents first.
func (v *verdicts) sorted() (out []verdict) {
	for _, code := range slices.Sorted(maps.Keys(v.byCode)) {
		out = append(out, *v.byCode[code])
	}
	slices.SortStableFunc(out, func(a, b verdict) int { return cmp.Compare(len(b.Documents), len(a.Documents)) })
	return out
}

// printWhy lists what failed and what was left out.
func (o *ingested) printWhy(w io.Writer) {
	list := func(codes []verdict) {
		for _, v := range codes {
			fmt.Fprintf(w, "  %s (%s): %s\n      %s\n", v.Code, number(len(v.Documents)), v.Message, named(v.Documents))
		}
	}
	if len(o.Failures)+len(o.Unread) > 0 {
		fmt.Fprint(w, "\nIssues\n")
	}
	list(o.Failures)
	for _, u := range o.Unread[:min(len(o.Unread), mostNames)] {
		fmt.Fprintf(w, "  %s: %s\n", u.Name, u.Error)
	}
	if len(o.Warnings) > 0 {
		fmt.Fprint(w, "\nWarnings\n")
	}
	list(o.Warnings)
	if o.cut {
		fmt.Fprintf(w, "\nThe first %s of a job are counted; there are more.\n", number(mostErrors))
	}
}

// err is the command's result as an error.
func (o *ingested) err() error {
	states := o.byState()
	lost := states[sheaf.DocFailed] + states[sheaf.DocCanceled] + len(o.Rejected) + len(o.Unread)
	torn := states[sheaf.DocPartiallySucceeded]
	if lost+torn == 0 {
		return nil
	}
	var says []string
	if lost > 0 {
		says = append(says, fmt.Sprintf("%s of %s did not succeed", number(lost), count(max(o.files, lost), "file")))
	}
	if torn > 0 {
		says = append(says, count(torn, "document")+" succeeded in part")
	}
	err := errors.New(strings.Join(says, ", "))
	if lost >= o.files && torn == 0 {
		return err
	}
	return partialError{err}
}

// mostNames is how many documents a verdict lists.
const mostNames = 5

// print writes the closing summary.
func (o *ingested) print(w io.Writer, waited bool) {
	states := o.byState()
	if !waited {
		sum := sumOf(o.Jobs)
		fmt.Fprintf(w, "Submitted %s (%s) to %s as %s.\n", count(sum.documents, "document"), size(o.bytes), o.Dataset, o.jobsInWords())
	} else {
		sum := sumOf(o.Jobs)
		fmt.Fprintf(w, "Ingested %s (%s) into %s in %s: %s", count(o.files, "file"), size(o.bytes), o.Dataset, span(time.Since(o.begun)), count(sum.pages, "page"))
		switch {
		case sum.reused > 0 && sum.reused == sum.pages:
			fmt.Fprint(w, ", all of them reused")
		case sum.reused > 0:
			fmt.Fprintf(w, ", %s of them reused", number(sum.reused))
		}
		fmt.Fprintln(w, ".")
		for _, s := range []struct {
			state sheaf.DocumentState
			says  string
		}{
			{sheaf.DocSucceeded, "succeeded"}, {sheaf.DocPartiallySucceeded, "succeeded in part"}, {sheaf.DocFailed, "failed"}, {sheaf.DocCanceled, "canceled"},
		} {
			if n := states[s.state]; n > 0 {
				fmt.Fprintf(w, "  %6s  %s\n", number(n), s.says)
			}
		}
	}
	if n := len(o.Rejected); n > 0 {
		fmt.Fprintf(w, "  %6s  refused\n", number(n))
	}
	if n := len(o.Unread); n > 0 {
		fmt.Fprintf(w, "  %6s  could not be read here\n", number(n))
	}
	o.printWhy(w)
	if len(o.Jobs) == 0 {
		return
	}
	fmt.Fprint(w, "\nNext\n")
	var next [][2]string
	id := o.Jobs[0].ID
	switch {
	case !waited:
		next = append(next, [2]string{"sheaf jobs " + id + " --wait", "follow it"})
	case states[sheaf.DocSucceeded]+states[sheaf.DocPartiallySucceeded] > 0:
		next = append(next, [2]string{"sheaf search" + o.flag + ` "your question"`, "search"})
	}
	var which []string
	for _, s := range []sheaf.DocumentState{sheaf.DocFailed, sheaf.DocPartiallySucceeded, sheaf.DocCanceled} {
		if states[s] > 0 {
			which = append(which, string(s))
		}
	}
	if len(which) > 0 {
		next = append(next, [2]string{"sheaf docs" + o.flag + " --state " + strings.Join(which, ","), "list what did not succeed"})
	}
	if len(o.Warnings) > 0 {
		next = append(next, [2]string{"sheaf docs" + o.flag + " --warning CODE", "list those with a warning"})
	}
	next = append(next, [2]string{o.URL, "see it in the page"})
	wide := 0
	for _, n := range next {
		wide = max(wide, len(n[0]))
	}
	for _, n := range next {
		fmt.Fprintf(w, "  %-*s  %s\n", wide, n[0], n[1])
	}
}

func (o *ingested) jobsInWords() string {
	if len(o.Jobs) == 1 {
		return "job " + o.Jobs[0].ID
	}
	return "jobs " + strings.Join(o.ids(), ", ")
}

// named lists the first documents of a verdict.
func named(documents []string) string {
	var out []string
	for _, d := range documents[:min(len(documents), mostNames)] {
		out = append(out, shortName(d, 60))
	}
	text := strings.Join(out, " · ")
	if more := len(documents) - len(out); more > 0 {
		text += fmt.Sprintf(" · and %s more", number(more))
	}
	return text
}
