package e2e

import (
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/taskstore/storetest"
)

// TestKeeperFollowsOtherProcesses sends small documents through processes whose
// keepers feed and fold once an hour: they end because the others tell the
// keeper that leads. The keeper that leads at last is the second one.
func TestKeeperFollowsOtherProcesses(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, env := range map[string]func(t *testing.T) []string{
		"redis": func(*testing.T) []string { return nil },
		"postgres": func(t *testing.T) []string {
			engine(t, "SHEAF_TEST_POSTGRES_DSN")
			return []string{"SHEAF_STORE_DRIVER=postgres", "SHEAF_STORE_DSN=" + storetest.Config(t, "postgres").DSN, "SHEAF_QUEUE_DRIVER=sql"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.env = append(f.env, ticksVar+"=1h", "SHEAF_KEEPER_LEADER_TTL=3s")
			f.env = append(f.env, env(t)...)
			f.sheaf("migrate")
			f.sheaf("tenant", "create", "alpha")
			s := &service{client: newClient(f.serve(), f.sheaf("key", "create", "alpha", "--scope", "write")), t: t}
			leads := func(k *process) func() bool {
				return func() bool { return strings.Contains(k.logs.all(), "keeper leads") }
			}
			first := f.start("keeper")
			waitFor(t, "the keeper to lead", leads(first))
			second := f.start("keeper")
			f.start("executor")
			send := func(n int) {
				t.Helper()
				word := fmt.Sprintf("subject%d", n)
				if job, _ := s.send(nil, text(word+".txt", "This page speaks of "+word+".")); job.State != sheaf.DocSucceeded || !s.finds(word) {
					t.Fatalf("document %d ended %s, or is not found", n, job.State)
				}
			}
			for n := range 3 {
				send(n)
			}
			if err := first.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the other keeper to lead", leads(second))
			send(3)
			if strings.Contains(first.logs.all()+second.logs.all(), "cannot listen for changes") {
				t.Error("a keeper did not hear the others")
			}
		})
	}
}
