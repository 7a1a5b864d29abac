package program

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// withParent makes the kernel kill the program when the thread that started it
// ends, as a fallback to the process group it shares with the parser's process.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// family lists pid and all its descendants (proc(5), stat).
func family(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{pid}
	}
	children := map[int][]int{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has exited
		}
		// The name is in parentheses and may contain anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], n)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// killFamily kills pid and its descendants, the latter first, so that none escapes
// as an orphan.
func killFamily(pid int) {
	all := family(pid)
	for i := len(all) - 1; i >= 0; i-- {
		_ = syscall.Kill(all[i], syscall.SIGKILL) // ESRCH: already gone
	}
}

// familyBytes returns the resident memory of pid and its descendants.
func familyBytes(pid int) int64 {
	var sum int64
	for _, p := range family(pid) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/statm")
		if err != nil {
			continue
		}
		if fields := strings.Fields(string(b)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes a number
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}
