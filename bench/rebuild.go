package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/blob/s3"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/elastic"
	"sheaf/internal/indexset"
	"sheaf/taskstore/sqlstore"
)

// fleetRebuild measures how fast an index is rebuilt from the artifacts on MySQL,
// MinIO and Elasticsearch while it is searched: with ranges of one chunk, as from
// letters, and of 16, as from 12 pages of a book.
func (b *bench) fleetRebuild(ctx context.Context) error {
	vars, err := b.engine(ctx, "mysql", "minio", "es")
	if err != nil {
		return err
	}
	for _, size := range []struct {
		name           string
		ranges, chunks int
		least          float64
	}{{"fleet.rebuild", 8000, 1, 500}, {"fleet.rebuild.book", 1500, 16, 0}} {
		r, err := b.rebuilt(ctx, vars, size.ranges, size.chunks)
		if err != nil {
			return err
		}
		slices.Sort(r.searches)
		note := fmt.Sprintf("%d ranges of %d chunks of 150 words in %.1f s to the switch, %.0f chunks/s while filled; CPU-ms a range: %s; %d searches meanwhile, median %.0f ms, 90 %% within %.0f; load %s",
			size.ranges, size.chunks, r.whole.Seconds(), float64(size.ranges*size.chunks)/r.filled, r.cpu, len(r.searches), ms(quantile(r.searches, .5)), ms(quantile(r.searches, .9)), load())
		if size.least > 0 {
			b.atLeast(size.name, float64(size.ranges)/r.filled, "ranges/s", size.least, note)
		} else {
			b.tell(size.name, float64(size.ranges)/r.filled, "ranges/s", note)
		}
	}
	return nil
}

type rebuild struct {
	filled   float64       // seconds of the first pass
	whole    time.Duration // until the new index is in use
	searches []time.Duration
	cpu      string
}

func (b *bench) rebuilt(ctx context.Context, vars map[string]string, ranges, chunks int) (r rebuild, err error) {
	dsn, name, err := newDatabase(ctx, vars)
	if err != nil {
		return r, err
	}
	store, err := sqlstore.Open(ctx, sqlstore.Config{Driver: "mysql", DSN: dsn})
	if err != nil {
		return r, err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return r, err
	}
	blobs, err := s3.Open(ctx, s3.Config{Endpoint: vars["SHEAF_TEST_S3_ENDPOINT"], AccessKey: vars["SHEAF_TEST_S3_ACCESS_KEY"], SecretKey: vars["SHEAF_TEST_S3_SECRET_KEY"], Bucket: strings.ToLower(name), CreateBucket: true})
	if err != nil {
		return r, err
	}
	queries, err := stock(ctx, dsn, blobs, ranges, chunks)
	if err != nil {
		return r, err
	}
	model := static.Default()
	url := vars["SHEAF_TEST_ES_URL"]
	set, err := indexset.Open(ctx, indexset.Config{
		Store: store, Blobs: blobs, Configured: indexset.Space{Model: model.Model(), Driver: "static"}, Embedder: model, Text: executor.EmbeddingText, Keeps: true, Follow: 100 * time.Millisecond, Grace: time.Millisecond,
		OpenIndex: func(ctx context.Context, s indexset.Space, owner string) (index.Index, error) {
			return elastic.Open(ctx, elastic.Config{URLs: []string{url}, Prefix: name, ModelID: s.Model.ID, Dim: s.Model.Dim, Owner: owner, Suffix: fmt.Sprintf("-r%d", s.Instance), Existing: s.Made})
		},
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, set.Close(), dropIndexes(ctx, url, name)) }()
	fill := func() (filled float64, err error) {
		for ctx.Err() == nil {
			if _, err := set.Step(ctx); err != nil {
				return 0, err
			}
			v := set.View()
			if v.State.Phase == indexset.Refused {
				return 0, fmt.Errorf("the new index was not taken: %s", v.State.Gate.Reason)
			}
			filled = max(filled, v.State.Fill.Seconds)
			if v.State.Lost == "" && v.State.Beside == nil {
				return filled, nil
			}
		}
		return 0, ctx.Err()
	}
	if _, err := fill(); err != nil { // a lost index is created first
		return r, err
	}
	pids := []int{os.Getpid(), b.enginePID("mysql"), b.enginePID("minio"), b.enginePID("es")}
	before := make([]time.Duration, len(pids))
	for i, pid := range pids {
		before[i] = cpuTime(pid)
	}
	if _, _, err := set.Act(ctx, indexset.Rebuild, false, false); err != nil {
		return r, err
	}
	begun := time.Now()
	done := make(chan struct{})
	var searching errgroup.Group
	searching.Go(func() error {
		for i := 0; ; i++ {
			select {
			case <-done:
				return nil
			case <-time.After(50 * time.Millisecond): // 20 per second
			}
			q := queries[i%len(queries)]
			vector, err := embed.Each(ctx, model, []string{q}, embed.Query)
			if err != nil {
				return err
			}
			at := time.Now()
			found, err := set.Search(ctx, index.Query{TenantID: "t", Text: q, Vector: vector[0], K: 10})
			if err != nil {
				return fmt.Errorf("searching while the index is rebuilt: %w", err)
			}
			if r.searches = append(r.searches, time.Since(at)); len(found.Text) == 0 {
				return fmt.Errorf("nothing was found for %q while the index is rebuilt", q)
			}
		}
	})
	r.filled, err = fill()
	r.whole = time.Since(begun)
	close(done)
	if err = errors.Join(err, searching.Wait()); err != nil {
		return r, err
	}
	var shares []string
	for i, part := range []string{"keeper", "MySQL", "MinIO", "Elasticsearch"} {
		shares = append(shares, fmt.Sprintf("%s %.2f", part, ms(cpuTime(pids[i])-before[i])/float64(ranges)))
	}
	r.cpu = strings.Join(shares, ", ")
	if r.filled == 0 || math.IsInf(r.filled, 0) {
		return r, errors.New("the fill took no time")
	}
	return r, nil
}

// stock stores documents of one range each, as executors leave them, and returns
// some of their sentences.
func stock(ctx context.Context, dsn string, blobs blob.Store, ranges, chunks int) (queries []string, err error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "INSERT INTO tenants (id, name, created_at) VALUES ('t', 't', 1)"); err != nil {
		return nil, err
	}
	model, text, random := static.Default().Model(), prose(), rand.New(rand.NewPCG(3, 4))
	var puts errgroup.Group
	puts.SetLimit(16)
	const rows = 200 // per statement
	var docs, tasks []string
	for i := range ranges {
		doc, task := sheaf.NewID(), sheaf.NewID()
		id := sheaf.RangeID(task, 1)
		key := sheaf.ArtifactKey("t", doc, id)
		made, vectors := make([]sheaf.Chunk, chunks), make([][]float32, chunks)
		for j := range made {
			made[j] = sheaf.Chunk{ID: sheaf.ChunkID(id, j), DocumentID: doc, Generation: 1, RangeID: id, Ordinal: j, Kind: sheaf.ChunkText, Language: "en", Text: text(10), Tokens: 200, Pages: []int{j + 1}, Boxes: []sheaf.Box{{Page: j + 1, X1: 500, Y1: 700}}}
			vectors[j] = unit(random, model.Dim)
		}
		if len(queries) < 200 {
			queries = append(queries, firstWords(made[0].Text, 6))
		}
		puts.Go(func() error {
			var file bytes.Buffer
			h := artifact.Header{DocumentID: doc, Generation: 1, RangeID: id, Range: sheaf.Range{From: 1, To: chunks}, Name: "letter.pdf", ModelID: model.ID, Dim: model.Dim}
			if err := artifact.Encode(&file, h, made, vectors); err != nil {
				return err
			}
			_, err := blobs.Put(ctx, key, &file, int64(file.Len()))
			return err
		})
		docs = append(docs, fmt.Sprintf("('%s','t','d','letter.pdf','application/pdf',1,'x','%sv1','succeeded',1,1,%d,'{}','j',1,1)", doc, sheaf.OriginalPrefix("t", doc), chunks))
		tasks = append(tasks, fmt.Sprintf("('%s','t','d','%s','j',1,'parse',1,%d,'done',1,'%s','%s',%d,'','','',1)", task, doc, chunks, id, key, chunks))
		if len(docs) < rows && i < ranges-1 {
			continue
		}
		for _, statement := range []string{
			"INSERT INTO documents (id,tenant_id,dataset_id,name,media_type,size,sha256,blob_key,state,gen,live_gen,chunk_count,parse_config,job_id,created_at,updated_at) VALUES " + strings.Join(docs, ","),
			"INSERT INTO tasks (id,tenant_id,dataset_id,doc_id,job_id,gen,kind,from_unit,to_unit,state,run_at,range_id,artifact_key,chunk_count,payload,result,failure,created_at) VALUES " + strings.Join(tasks, ","),
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return nil, err
			}
		}
		docs, tasks = nil, nil
	}
	return queries, puts.Wait()
}

// unit returns a vector of length 1.
func unit(random *rand.Rand, dim int) []float32 {
	v, sum := make([]float32, dim), 0.0
	for i := range v {
		v[i] = float32(random.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func firstWords(text string, n int) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(n, len(words))], " ")
}
