//go:build !linux

package child

func attempt(string, string) string { return "only Linux confines" }
