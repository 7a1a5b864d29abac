package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/receipt"
	"sheaf/internal/secrets"
	"sheaf/taskstore/sqlstore"
)

// keyFile holds the keys of a single-folder installation.
const keyFile = "secrets.key"

// unlock gives the store its keys. A sole process also seals what an earlier
// version wrote in plain text or a rotation left under an old key; in a fleet the
// API does it (sealOld).
func (a *app) unlock(ctx context.Context) error {
	ring, err := keyring(ctx, a.cfg, a.path(keyFile), a.store)
	if err == nil {
		a.receipts = receipt.New(ring)
		err = unlockStore(ctx, a.store, ring)
	}
	if err != nil || !a.cfg.Sole() {
		return err
	}
	done, err := a.store.SealSecrets(ctx, false)
	if err != nil {
		return fmt.Errorf("sealing the secrets in the store: %w", err)
	}
	sealed(a.log, done)
	return nil
}

// sealOld seals what earlier versions wrote in plain text. During a key rotation
// `sheaf secrets rotate` does it instead, once all processes have the new key.
func (a *app) sealOld(ctx context.Context) {
	if ids, err := a.store.SecretKeys(ctx); err != nil || len(ids) != 1 {
		return
	}
	done, err := a.store.SealSecrets(ctx, false)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("old secrets in the store are not sealed yet; `sheaf secrets rotate` does it, and so does the next start", "error", err)
	}
	sealed(a.log, done)
}

func sealed(log *slog.Logger, done sqlstore.Sealed) {
	if done.Changed > 0 {
		log.Info("sealed secrets in the store that were readable or under an old key", "rows", done.Changed)
	}
	if done.Unreadable > 0 {
		log.Warn("secrets in the store cannot be opened with any key; enter those webhook secrets and passwords again", "rows", done.Unreadable)
	}
}

// keyring finds the keys: those of the configuration, or those of the file, which
// is created for a store that never had any. A store that had keys is never
// silently given new ones.
func keyring(ctx context.Context, cfg config.Config, path string, store *sqlstore.Store) (*secrets.Keyring, error) {
	ring, err := existingKeys(ctx, cfg, path, store)
	if ring != nil || err != nil {
		return ring, err
	}
	return secrets.Create(path)
}

// existingKeys is keyring without creating keys: nil if they have to be created.
func existingKeys(ctx context.Context, cfg config.Config, path string, store *sqlstore.Store) (*secrets.Keyring, error) {
	if text := cfg.Store.SecretsKey.Reveal(); text != "" {
		ring, err := secrets.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("store.secrets_key: %w", err)
		}
		return ring, nil
	}
	ring, err := secrets.Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return ring, err
	}
	known, err := store.SecretKeys(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(known) > 0:
		return nil, fmt.Errorf("%w: the store's secrets are sealed with key %s, and %s does not exist; take the file back from the backup, or set store.secrets_key. If the key is lost for good, `sheaf secrets forget --yes` gives the secrets up",
			sheaf.ErrInvalid, strings.Join(known, ", "), path)
	case !cfg.Sole():
		return nil, fmt.Errorf("%w: store.secrets_key is empty; print a key with `sheaf secrets generate` and set it, the same on every process (SHEAF_STORE_SECRETS_KEY, or SHEAF_STORE_SECRETS_KEY_FILE for a mounted one)", sheaf.ErrInvalid)
	}
	return nil, nil
}

func unlockStore(ctx context.Context, store *sqlstore.Store, ring *secrets.Keyring) error {
	if err := store.Unlock(ctx, ring); err != nil {
		return fmt.Errorf("opening the secrets in the store: %w; give this process the keys that the others have (store.secrets_key, or %s of the data folder), and take no old key away before `sheaf secrets rotate` has run", err, keyFile)
	}
	return nil
}

// withKeys opens the store and its keys for one command. If the keys are in a file,
// rotate adds a new key first.
func (g *global) withKeys(ctx context.Context, rotate bool, f func(ctx context.Context, s *sqlstore.Store, ring *secrets.Keyring) error) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	return g.withStore(ctx, false, func(ctx context.Context, s *sqlstore.Store) error {
		path := (&app{cfg: cfg}).path(keyFile)
		ring, err := keyring(ctx, cfg, path, s)
		if err != nil {
			return err
		}
		if rotate && cfg.Store.SecretsKey == "" {
			if cfg.Sole() { // a running process would not know the new key
				unlock, err := lockDir(cfg.DataDir)
				if err != nil {
					return err
				}
				defer func() { _ = unlock() }() // the kernel releases the lock with the process
			}
			if err := unlockStore(ctx, s, ring); err != nil {
				return err
			}
			if ring, err = secrets.Prepend(path); err != nil {
				return err
			}
		}
		if err := unlockStore(ctx, s, ring); err != nil {
			return err
		}
		return f(ctx, s, ring)
	})
}

func (g *global) secretsCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "secrets", Short: "The keys that seal webhook secrets and passwords in the store", Example: "  sheaf secrets status\n  sheaf secrets rotate"})
	generate := &cobra.Command{
		Use: "generate", Example: "  sheaf secrets generate", Short: "Print a new key for store.secrets_key", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), secrets.Generate())
			return err
		},
	}
	status := &cobra.Command{
		Use: "status", Example: "  sheaf secrets status", Short: "Name the keys of this process and those that the store needs", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withKeys(cmd.Context(), false, func(ctx context.Context, s *sqlstore.Store, ring *secrets.Keyring) error {
				needed, err := s.SecretKeys(ctx)
				if err != nil {
					return err
				}
				return g.printJSON(map[string]any{"current": ring.Current(), "keys": ring.IDs(), "needed": needed})
			})
		},
	}
	var sure confirmation
	rotate := &cobra.Command{
		Use: "rotate", Example: "  sheaf secrets rotate --dry-run\n  sheaf secrets rotate", Short: "Seal all secrets with a new key", Args: needs(0, 0, ""),
		Long: "With keys in the data folder: puts a new key first in secrets.key and seals everything with it; the service must not run. With store.secrets_key: seals everything with the first of its keys; put the new key before the old one on all processes and restart them before.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sure.dryRun {
				return g.withStore(cmd.Context(), true, func(ctx context.Context, s *sqlstore.Store) error {
					cfg, err := g.load()
					if err != nil {
						return err
					}
					ring, err := existingKeys(ctx, cfg, (&app{cfg: cfg}).path(keyFile), s)
					if err != nil {
						return err
					}
					needed, err := s.SecretKeys(ctx)
					if err != nil {
						return err
					}
					current, with := "", "a new key"
					if ring != nil {
						current = ring.Current()
					}
					for _, id := range needed {
						if !ring.Has(id) {
							return fmt.Errorf("%w: the store's secrets are sealed with key %s, which this process does not have", sheaf.ErrInvalid, id)
						}
					}
					if cfg.Store.SecretsKey != "" {
						with = "the key " + current
					}
					return g.done(map[string]any{"current": current, "dry_run": true}, "Nothing was changed. This would seal all secrets with %s.", with)
				})
			}
			return g.withKeys(cmd.Context(), true, func(ctx context.Context, s *sqlstore.Store, ring *secrets.Keyring) error {
				done, err := s.SealSecrets(ctx, true)
				if err != nil {
					return err
				}
				return g.printJSON(map[string]any{"current": ring.Current(), "changed": done.Changed, "unreadable": done.Unreadable})
			})
		},
	}
	sure.dryFlag(rotate)
	forget := &cobra.Command{
		Use: "forget", Example: "  sheaf secrets forget --dry-run\n  sheaf secrets forget --yes", Short: "Give up secrets whose key is lost", Args: needs(0, 0, ""),
		Long: "Lets the service start with new keys after the old ones were lost. Webhooks then fail until they are made again, and protected documents ask for their password when they are parsed again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sure.dryRun {
				return g.withStore(cmd.Context(), true, func(ctx context.Context, s *sqlstore.Store) error {
					needed, err := s.SecretKeys(ctx)
					if err != nil {
						return err
					}
					return g.done(map[string]any{"needed": needed, "dry_run": true}, "Nothing was changed. This would give up what is sealed with: %s.", cmp.Or(strings.Join(needed, ", "), "no key"))
				})
			}
			if !sure.yes {
				return usageError{errors.New("nothing sealed so far can be read afterwards; say --yes if the key is lost for good")}
			}
			return g.withStore(cmd.Context(), false, func(ctx context.Context, s *sqlstore.Store) error { return s.ForgetSecretKeys(ctx) })
		},
	}
	forget.Flags().BoolVar(&sure.yes, "yes", false, "the key is lost for good")
	sure.dryFlag(forget)
	cmd.AddCommand(generate, status, rotate, forget)
	return cmd
}
