// Package s3 stores objects in a bucket of MinIO, Amazon S3 or a compatible store:
// the blob store of a fleet whose machines share no disk.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/blob"
)

const (
	partBytes = 16 << 20 // memory per upload; S3 accepts 5 MB to 5 GB
	maxParts  = 10_000   // per object, S3's limit
	maxBytes  = 5 << 40  // per object, S3's limit

	// staleUpload is the age from which an unfinished upload is presumed to be from
	// a crashed process.
	staleUpload = 24 * time.Hour
	// cleanupTimeout bounds work after the caller's context has ended.
	cleanupTimeout = 10 * time.Second
)

// Config locates the bucket and holds the credentials.
type Config struct {
	Endpoint string // "https://s3.eu-central-1.amazonaws.com", "http://minio:9000"
	// PublicEndpoint is the host in presigned URLs, if clients reach the store by
	// another name than this process does; empty means Endpoint.
	PublicEndpoint string
	Region         string // empty means "us-east-1"
	Bucket         string
	Prefix         string // prepended to every key, for a shared bucket; empty, or ending in "/"
	CreateBucket   bool   // create the bucket if missing
	PathStyle      bool   // address the bucket in the path instead of the host name; automatic for IP addresses

	// Credentials is "static" (the three fields below), "env" (AWS_* or MINIO_*
	// variables), "iam" (the role of the machine, pod or container), or "" for the
	// first of them that is available.
	Credentials string
	AccessKey   string
	SecretKey   string
	// Keys returns the current access key and secret key; nil for those above.
	Keys         func() (access, secret string)
	SessionToken string

	CAFile     string // PEM file of authorities to trust in addition to the system's
	MaxRetries int    // per request, with backoff; 0 means 4
}

// String omits the secrets.
func (c Config) String() string {
	return fmt.Sprintf("s3{%s bucket=%s prefix=%q region=%s}", c.Endpoint, c.Bucket, c.Prefix, c.Region)
}

// GoString omits the secrets.
func (c Config) GoString() string { return c.String() }

// Store is a bucket, or a prefix of one. It is safe for concurrent use.
type Store struct {
	config Config
	client *minio.Core
	public *minio.Core // signs URLs for clients
	parts  sync.Pool   // *[]byte of up to partBytes
}

var (
	_ blob.Store     = (*Store)(nil)
	_ blob.Presigner = (*Store)(nil)
)

// Open validates the configuration, creates the bucket if configured, and aborts
// uploads left behind by crashed processes. An unreachable store is
// sheaf.ErrUnavailable: try again later.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Bucket == "" {
		return nil, fmt.Errorf("%w: no bucket is configured", sheaf.ErrInvalid)
	}
	if err := blob.CheckPrefix(c.Prefix, true); err != nil {
		return nil, err
	}
	if c.Region == "" {
		c.Region = "us-east-1" // otherwise signing would first query the server
	}
	if c.MaxRetries == 0 {
		c.MaxRetries = 4
	}
	client, err := connect(c, c.Endpoint)
	if err != nil {
		return nil, err
	}
	s := &Store{config: c, client: client, public: client}
	if c.PublicEndpoint != "" {
		if s.public, err = connect(c, c.PublicEndpoint); err != nil {
			return nil, err
		}
	}
	exists, err := client.BucketExists(ctx, c.Bucket)
	if err != nil {
		return nil, s.explain(ctx, "reach the bucket", err)
	}
	if !exists && !c.CreateBucket {
		return nil, fmt.Errorf("%w: %s has no bucket %q; create it, or allow sheaf to", sheaf.ErrNotFound, c.Endpoint, c.Bucket)
	}
	if !exists {
		err := client.MakeBucket(ctx, c.Bucket, minio.MakeBucketOptions{Region: c.Region})
		// Another process may have been faster.
		if code := minio.ToErrorResponse(err).Code; err != nil && code != minio.BucketAlreadyOwnedByYou && code != minio.BucketAlreadyExists {
			return nil, s.explain(ctx, "create the bucket", err)
		}
	}
	// Only garbage is at stake, so a store that does not allow listing uploads is fine.
	_, _ = s.AbortStale(ctx, staleUpload)
	return s, nil
}

func connect(c Config, endpoint string) (*minio.Core, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return nil, fmt.Errorf("%w: the S3 endpoint must be like https://host:port, without a path or a password", sheaf.ErrInvalid)
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("%w: TLS for %s: %w", sheaf.ErrInvalid, u.Host, err)
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: the file of authorities: %w", sheaf.ErrInvalid, err)
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no PEM certificate", sheaf.ErrInvalid, c.CAFile)
		}
		if transport.TLSClientConfig == nil {
			transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: creds, Secure: u.Scheme == "https", Transport: transport, Region: c.Region, BucketLookup: lookup, MaxRetries: c.MaxRetries,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: the S3 client for %s: %w", sheaf.ErrInvalid, u.Host, err)
	}
	return client, nil
}

// liveKeys are credentials that can change; *credentials.Credentials locks around
// each call.
type liveKeys struct {
	keys           func() (access, secret string)
	token          string
	access, secret string
}

func (l *liveKeys) Retrieve() (credentials.Value, error) {
	l.access, l.secret = l.keys()
	return credentials.Value{AccessKeyID: l.access, SecretAccessKey: l.secret, SessionToken: l.token, SignerType: credentials.SignatureV4}, nil
}

func (l *liveKeys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return l.Retrieve()
}

func (l *liveKeys) IsExpired() bool {
	access, secret := l.keys()
	return access != l.access || secret != l.secret
}

func (c Config) credentials() (*credentials.Credentials, error) {
	switch c.Credentials {
	case "static":
		if c.AccessKey == "" || c.SecretKey == "" {
			return nil, fmt.Errorf("%w: static S3 credentials need an access key and a secret key", sheaf.ErrInvalid)
		}
		if c.Keys != nil {
			return credentials.New(&liveKeys{keys: c.Keys, token: c.SessionToken}), nil
		}
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken), nil
	case "env":
		return credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.EnvMinio{}}), nil
	case "iam":
		return credentials.NewIAM(""), nil
	case "":
		if c.AccessKey != "" || c.SecretKey != "" {
			c.Credentials = "static"
			return c.credentials()
		}
		return credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}), nil
	}
	return nil, fmt.Errorf("%w: S3 credentials are static, env or iam, not %q", sheaf.ErrInvalid, c.Credentials)
}

// AbortStale aborts the unfinished uploads older than age and returns their number.
func (s *Store) AbortStale(ctx context.Context, age time.Duration) (int, error) {
	n, keyMarker, idMarker := 0, "", ""
	for range 1000 { // pages of 1,000
		page, err := s.client.ListMultipartUploads(ctx, s.config.Bucket, s.config.Prefix, keyMarker, idMarker, "", 1000)
		if err != nil {
			return n, s.explain(ctx, "list unfinished uploads", err)
		}
		for _, u := range page.Uploads {
			if time.Since(u.Initiated) < age {
				continue
			}
			if err := s.client.AbortMultipartUpload(ctx, s.config.Bucket, u.Key, u.UploadID); err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
				return n, s.explain(ctx, "abort an unfinished upload", err)
			}
			n++
		}
		if !page.IsTruncated {
			break
		}
		keyMarker, idMarker = page.NextKeyMarker, page.NextUploadIDMarker
	}
	return n, nil
}

// digester counts and hashes what passes, and tells the reader's own error from
// those of the store.
type digester struct {
	ctx  context.Context
	r    io.Reader
	hash hash.Hash
	n    int64
	err  error
}

func (d *digester) Read(p []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		d.err = err
		return 0, err
	}
	n, err := d.r.Read(p)
	_, _ = d.hash.Write(p[:n])
	d.n += int64(n)
	if err != nil && err != io.EOF {
		d.err = err
	}
	return n, err
}

// sum is the hex SHA-256 of what was read.
func (d *digester) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// Put sends what fits into one part as one request, and more as a multipart upload,
// part by part: the object appears when the last request succeeds.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	if size > maxBytes {
		return blob.Info{}, fmt.Errorf("%w: %s is to have %d bytes and S3 takes at most %d", sheaf.ErrInvalid, key, size, int64(maxBytes))
	}
	buf, _ := s.parts.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer s.parts.Put(buf)

	d := &digester{ctx: ctx, r: r, hash: sha256.New()}
	err := s.put(ctx, key, d, size, buf)
	if d.err != nil && d.err != ctx.Err() {
		return blob.Info{}, fmt.Errorf("reading what is to become %s: %w", key, d.err)
	}
	if err != nil {
		return blob.Info{}, s.explain(ctx, "write "+key, err)
	}
	return blob.Info{Key: key, Size: d.n, SHA256: d.sum(), Modified: time.Now()}, nil
}

// A put that is denied is repeated after these waits: MinIO on a single drive also
// answers so where a delete removes the folder at the same moment.
const (
	deniedWait    = 50 * time.Millisecond
	maxDeniedWait = 100 * time.Millisecond
)

func (s *Store) put(ctx context.Context, key string, d *digester, size int64, buf *[]byte) error {
	bucket, object := s.config.Bucket, s.config.Prefix+key
	last, err := fill(d, buf)
	if err != nil {
		return err
	}
	if last {
		if size >= 0 && d.n != size {
			return sizeError(key, d.n, size)
		}
		// All bytes are buffered and hashed already. Signing their digest costs
		// both sides less than the client's stream of signed pieces, and makes the
		// store reject damaged bytes over TLS too, where that stream is not used.
		for wait := deniedWait; ; wait *= 2 {
			_, err := s.client.PutObject(ctx, bucket, object, bytes.NewReader(*buf), int64(len(*buf)), "", d.sum(), minio.PutObjectOptions{DisableContentSha256: true})
			if wait > maxDeniedWait || minio.ToErrorResponse(err).Code != minio.AccessDenied {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(wait):
			}
		}
	}

	upload, err := s.client.NewMultipartUpload(ctx, bucket, object, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			s.abort(ctx, object, upload)
		}
	}()
	var parts []minio.CompletePart
	send := func(r io.Reader, n int64) error {
		part, err := s.client.PutObjectPart(ctx, bucket, object, upload, len(parts)+1, r, n, minio.PutObjectPartOptions{})
		parts = append(parts, minio.CompletePart{
			PartNumber: part.PartNumber, ETag: part.ETag, ChecksumCRC32: part.ChecksumCRC32, ChecksumCRC32C: part.ChecksumCRC32C,
			ChecksumSHA1: part.ChecksumSHA1, ChecksumSHA256: part.ChecksumSHA256, ChecksumCRC64NVME: part.ChecksumCRC64NVME,
		})
		return err
	}
	if each := partSize(size); each > partBytes {
		// Parts too large to buffer are streamed: known length, no retry on error.
		rest := io.MultiReader(bytes.NewReader(*buf), d)
		for left := size; left > 0; left -= each {
			n := min(each, left)
			if err := send(io.LimitReader(rest, n), n); err != nil {
				return err
			}
		}
		if n, _ := d.Read(make([]byte, 1)); n > 0 {
			return sizeError(key, d.n, size)
		}
	} else {
		for {
			if size >= 0 && d.n > size {
				return sizeError(key, d.n, size)
			}
			if len(parts) == maxParts {
				return fmt.Errorf("%w: %s has more than %d bytes; announce its size to store it", sheaf.ErrInvalid, key, int64(maxParts)*partBytes)
			}
			if err := send(bytes.NewReader(*buf), int64(len(*buf))); err != nil {
				return err
			}
			if last {
				break
			}
			if last, err = fill(d, buf); err != nil {
				return err
			}
			if last && len(*buf) == 0 {
				break
			}
		}
	}
	if size >= 0 && d.n != size {
		return sizeError(key, d.n, size)
	}
	_, err = s.client.CompleteMultipartUpload(ctx, bucket, object, upload, parts, minio.PutObjectOptions{})
	done = err == nil
	return err
}

// copiesAtOnce is how many parts of one composed object are copied concurrently.
const copiesAtOnce = 4

// Compose has the store copy the parts into a multipart upload.
func (s *Store) Compose(ctx context.Context, key string, parts []string) error {
	if err := blob.CheckParts(key, parts); err != nil {
		return err
	}
	if err := s.compose(ctx, key, parts); err != nil {
		return s.explain(ctx, "compose "+key, err)
	}
	return nil
}

func (s *Store) compose(ctx context.Context, key string, parts []string) error {
	bucket, object := s.config.Bucket, s.config.Prefix+key
	if len(parts) == 1 {
		// The store refuses to copy more than 5 GB at once; no part is that large.
		_, err := s.client.CopyObject(ctx, bucket, s.config.Prefix+parts[0], bucket, object, nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
		return err
	}
	upload, err := s.client.NewMultipartUpload(ctx, bucket, object, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			s.abort(ctx, object, upload)
		}
	}()
	copied := make([]minio.CompletePart, len(parts))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(copiesAtOnce)
	for i, part := range parts {
		group.Go(func() error {
			info, err := s.client.StatObject(gctx, bucket, s.config.Prefix+part, minio.StatObjectOptions{})
			if err != nil {
				return err
			}
			if err := blob.CheckPart(part, i, len(parts), info.Size); err != nil {
				return err
			}
			copied[i], err = s.client.CopyObjectPart(gctx, bucket, s.config.Prefix+part, bucket, object, upload, i+1, 0, -1, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = s.client.CompleteMultipartUpload(ctx, bucket, object, upload, copied, minio.PutObjectOptions{})
	done = err == nil
	return err
}

// abort aborts an upload even if ctx has ended, because otherwise the parts would
// be kept and billed.
func (s *Store) abort(ctx context.Context, object, upload string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = s.client.AbortMultipartUpload(ctx, s.config.Bucket, object, upload)
}

// partSize is partBytes, or more if size would need more than maxParts.
func partSize(size int64) int64 {
	const mb = 1 << 20
	return max(partBytes, ((size+maxParts-1)/maxParts+mb-1)/mb*mb)
}

func sizeError(key string, got, want int64) error {
	return fmt.Errorf("%w: %s has %d bytes (or more) where %d were announced", sheaf.ErrInvalid, key, got, want)
}

// fill reads the next part into buf, growing it as needed, and reports whether it
// is the last.
func fill(r io.Reader, buf *[]byte) (last bool, err error) {
	b := (*buf)[:0]
	defer func() { *buf = b }()
	for empty := 0; len(b) < partBytes; {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(partBytes, max(64<<10, 16*cap(b))))
			copy(grown, b)
			b = grown
		}
		n, err := r.Read(b[len(b):min(cap(b), partBytes)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if n > 0 {
			empty = 0
		} else if empty++; empty == 100 {
			return false, io.ErrNoProgress
		}
	}
	return false, nil
}

// Open requests only the span. The response is one version of the object.
func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := errors.Join(blob.CheckKey(key), blob.CheckSpan(offset, length)); err != nil {
		return nil, err
	}
	if length == 0 {
		return s.emptySpan(ctx, key, offset)
	}
	var opts minio.GetObjectOptions
	if length > 0 {
		end := offset + length - 1
		if end < offset { // overflow: to the end
			end = 1<<63 - 1
		}
		_ = opts.SetRange(offset, end)
	} else if offset > 0 {
		_ = opts.SetRange(offset, 0) // "bytes=offset-"
	}
	body, _, _, err := s.client.GetObject(ctx, s.config.Bucket, s.config.Prefix+key, opts)
	if err != nil {
		if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
			return s.emptySpan(ctx, key, offset) // at or past the end of the object
		}
		return nil, s.explain(ctx, "open "+key, err)
	}
	return &answer{ctx: ctx, s: s, key: key, ReadCloser: body}, nil
}

// emptySpan serves a read of no bytes after checking that it is one.
func (s *Store) emptySpan(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	info, err := s.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	if offset > info.Size {
		return nil, fmt.Errorf("%w: %s has %d bytes, none at offset %d", sheaf.ErrInvalid, key, info.Size, offset)
	}
	return http.NoBody, nil
}

// answer explains errors in the middle of a response.
type answer struct {
	ctx context.Context
	s   *Store
	key string
	io.ReadCloser
}

func (b *answer) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil { // even if the rest is already buffered
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.s.explain(b.ctx, "read "+b.key, err)
	}
	return n, err
}

// Stat describes the object without its digest.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	o, err := s.client.StatObject(ctx, s.config.Bucket, s.config.Prefix+key, minio.StatObjectOptions{})
	if err != nil {
		return blob.Info{}, s.explain(ctx, "find "+key, err)
	}
	return blob.Info{Key: key, Size: o.Size, Modified: o.LastModified}, nil
}

// Delete removes objects, a thousand per request.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := blob.CheckKey(key); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return ctx.Err()
	}
	// A goroutine of the client reads the channel until ctx ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	objects := make(chan minio.ObjectInfo, len(keys))
	for _, key := range keys {
		objects <- minio.ObjectInfo{Key: s.config.Prefix + key}
	}
	close(objects)
	for failed := range s.client.RemoveObjects(ctx, s.config.Bucket, objects, minio.RemoveObjectsOptions{}) {
		if code := minio.ToErrorResponse(failed.Err).Code; code != minio.NoSuchKey {
			return s.explain(ctx, "delete "+strings.TrimPrefix(failed.ObjectName, s.config.Prefix), failed.Err)
		}
	}
	return ctx.Err()
}

// DeletePrefix lists and deletes a thousand objects at a time.
func (s *Store) DeletePrefix(ctx context.Context, prefix string) (int, error) {
	if err := blob.CheckPrefix(prefix, false); err != nil {
		return 0, err
	}
	for n := 0; ; {
		var keys []string
		if err := s.List(ctx, prefix, func(i blob.Info) bool {
			keys = append(keys, i.Key)
			return len(keys) < 1000
		}); err != nil {
			return n, err
		}
		if len(keys) == 0 {
			return n, nil
		}
		if err := s.Delete(ctx, keys...); err != nil {
			return n, err
		}
		n += len(keys)
	}
}

// List requests a thousand objects at a time.
func (s *Store) List(ctx context.Context, prefix string, each func(blob.Info) bool) error {
	return s.ListAfter(ctx, prefix, "", each)
}

// ListAfter has the store start after after.
func (s *Store) ListAfter(ctx context.Context, prefix, after string, each func(blob.Info) bool) error {
	if err := blob.CheckPrefix(prefix, true); err != nil {
		return err
	}
	options := minio.ListObjectsOptions{Prefix: s.config.Prefix + prefix, Recursive: true}
	if after != "" {
		options.StartAfter = s.config.Prefix + after
	}
	return s.list(ctx, prefix, options, func(key string, o minio.ObjectInfo) bool {
		return blob.CheckKey(key) != nil || each(blob.Info{Key: key, Size: o.Size, Modified: o.LastModified}) // skip what is not ours
	})
}

// Children has the store group deeper keys.
func (s *Store) Children(ctx context.Context, prefix string, each func(name string) bool) error {
	if err := blob.CheckPrefix(prefix, true); err != nil {
		return err
	}
	return s.list(ctx, prefix, minio.ListObjectsOptions{Prefix: s.config.Prefix + prefix}, func(name string, _ minio.ObjectInfo) bool {
		return blob.CheckKey(strings.TrimSuffix(name, "/")) != nil || each(name)
	})
}

// list reads a thousand names at a time until each returns false.
func (s *Store) list(ctx context.Context, prefix string, options minio.ListObjectsOptions, each func(key string, o minio.ObjectInfo) bool) error {
	listing, cancel := context.WithCancel(ctx) // ends the client's goroutine
	defer cancel()
	for o := range s.client.Client.ListObjects(listing, s.config.Bucket, options) {
		if o.Err != nil {
			return s.explain(ctx, "list "+prefix, o.Err)
		}
		if !each(strings.TrimPrefix(o.Key, s.config.Prefix), o) {
			return nil
		}
	}
	return ctx.Err()
}

// Ping lists the first name in the bucket. It writes nothing, so it does not notice
// that the store is full or the key is read-only.
func (s *Store) Ping(ctx context.Context) error {
	listing, cancel := context.WithCancel(ctx)
	defer cancel() // ends the client's goroutine
	objects := s.client.Client.ListObjects(listing, s.config.Bucket, minio.ListObjectsOptions{Prefix: s.config.Prefix, MaxKeys: 1})
	if object, any := <-objects; any && object.Err != nil {
		return s.explain(ctx, "list the bucket", object.Err)
	}
	return ctx.Err()
}

// PresignPut returns a URL to which anyone may PUT the object with size bytes until
// expires has passed, at most 7 days.
func (s *Store) PresignPut(ctx context.Context, key string, size int64, expires time.Duration) (string, error) {
	if err := checkPresign(key, expires); err != nil {
		return "", err
	}
	// The length is signed: otherwise the URL would accept anything up to the
	// store's limit, whatever the tenant's quota.
	length := http.Header{"Content-Length": {strconv.FormatInt(size, 10)}}
	u, err := s.public.PresignHeader(ctx, http.MethodPut, s.config.Bucket, s.config.Prefix+key, expires, nil, length)
	if err != nil {
		return "", s.explain(ctx, "sign an address for "+key, err)
	}
	return u.String(), nil
}

// PresignGet returns a URL from which anyone may GET the object until expires has
// passed, at most 7 days. disposition is the Content-Disposition of the store's
// response, empty for none.
func (s *Store) PresignGet(ctx context.Context, key string, expires time.Duration, disposition string) (string, error) {
	if err := checkPresign(key, expires); err != nil {
		return "", err
	}
	query := url.Values{}
	if disposition != "" {
		query.Set("response-content-disposition", disposition)
	}
	u, err := s.public.PresignedGetObject(ctx, s.config.Bucket, s.config.Prefix+key, expires, query)
	if err != nil {
		return "", s.explain(ctx, "sign an address for "+key, err)
	}
	return u.String(), nil
}

func checkPresign(key string, expires time.Duration) error {
	if expires < time.Second || expires > 7*24*time.Hour {
		return fmt.Errorf("%w: a presigned address is valid for 1 second to 7 days, not %s", sheaf.ErrInvalid, expires)
	}
	return blob.CheckKey(key)
}

// explain maps an error of the client to one of the contract.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	if cerr := ctx.Err(); cerr != nil {
		return cerr
	}
	for _, kind := range []error{sheaf.ErrInvalid, sheaf.ErrNotFound, sheaf.ErrUnavailable, sheaf.ErrReadOnly, io.ErrNoProgress} {
		if errors.Is(err, kind) {
			return err
		}
	}
	where := fmt.Sprintf("cannot %s in bucket %s of %s", what, s.config.Bucket, s.config.Endpoint)
	response := minio.ToErrorResponse(err)
	switch response.Code {
	case minio.NoSuchBucket:
		return fmt.Errorf("%w: %s: the bucket does not exist (%w); create it, or allow sheaf to", sheaf.ErrUnavailable, where, sheaf.ErrMisconfigured)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidTokenId":
		return fmt.Errorf("%w: %s: the credentials are refused (%s: %w); check blob.access_key, blob.secret_key and the clock, and the work that waits goes on", sheaf.ErrUnavailable, where, response.Code, sheaf.ErrMisconfigured)
	case minio.AccessDenied:
		return fmt.Errorf("%w: %s: access is denied; the policy of the key must allow reading, writing, listing and deleting", sheaf.ErrReadOnly, where)
	case "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "XMinioServerReadOnly", "XMinioBackendReadOnly":
		return fmt.Errorf("%w: %s: %s; free some space or raise the quota", sheaf.ErrReadOnly, where, response.Message)
	case "XMinioParentIsObject", "XMinioObjectExistsAsDirectory", "KeyTooLongError", "XMinioInvalidObjectName", "EntityTooLarge":
		return fmt.Errorf("%w: %s: %s", sheaf.ErrInvalid, where, response.Message)
	case minio.NoSuchKey:
		return fmt.Errorf("%w: %s", sheaf.ErrNotFound, where)
	}
	switch response.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", sheaf.ErrNotFound, where)
	case http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %s: the store is full; free some space", sheaf.ErrReadOnly, where)
	}
	return fmt.Errorf("%w: %s: %w", sheaf.ErrUnavailable, where, err)
}
