package command

import (
	"io"
	"log/slog"
	"maps"
	"net/http"

	"github.com/spf13/cobra"

	"sheaf/internal/buildinfo"
	"sheaf/internal/dify"
	"sheaf/internal/docling"
	"sheaf/internal/facade"
	"sheaf/internal/mcp"
	"sheaf/internal/openaistore"
	"sheaf/internal/openwebui"
	"sheaf/internal/ragflow"
	"sheaf/internal/tika"
)

// interfaces are the routes of the protocols enabled in server.interfaces.
func (a *app) interfaces(v1 http.RoundTripper) map[string]http.Handler {
	out, version := map[string]http.Handler{}, buildinfo.Get().Version
	for _, name := range a.cfg.Server.Served() {
		switch name {
		case "mcp":
			out["/mcp"] = mcp.Handler(v1, version, a.log)
		case "tika":
			maps.Copy(out, tika.Routes(v1, version))
		case "openwebui":
			maps.Copy(out, openwebui.Routes(v1))
		case "dify":
			maps.Copy(out, dify.Routes(v1))
		case "docling":
			maps.Copy(out, docling.Routes(v1, version))
		case "ragflow":
			maps.Copy(out, ragflow.Routes(v1))
		case "openai":
			maps.Copy(out, openaistore.Routes(v1))
		}
	}
	return out
}

func (g *global) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Serve the Model Context Protocol over stdio, for assistants", Args: needs(0, 0, ""),
		Example: "  sheaf mcp\n  sheaf mcp --server https://sheaf.example.org --key KEY",
		Long:    "Assistants such as Claude Desktop, VS Code and Cursor start this command, and search and read documents through it. It talks to the running Sheaf that --server names, or to the one that uses the data folder. docs/mcp.md has what they need.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			return mcp.Stdio(cmd.Context(), facade.New(c.base, c.key), io.NopCloser(cmd.InOrStdin()), unclosed{cmd.OutOrStdout()}, buildinfo.Get().Version, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
		},
	}
}

// unclosed is a writer that the protocol's shutdown does not close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
