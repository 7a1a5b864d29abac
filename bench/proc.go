package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of CPU times in /proc/<pid>/stat: Linux reports them in
// hundredths of a second to user space on every architecture (proc(5)).
const tick = time.Second / 100

// tree lists a process and its running descendants. It is called after each file: a
// glob pattern would list every thread's folder, which was a seventh of the
// apparent cost of reading the smallest files.
func tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		tasks := fmt.Sprintf("/proc/%d/task", pids[i])
		threads, _ := os.ReadDir(tasks)
		for _, t := range threads {
			b, err := os.ReadFile(filepath.Join(tasks, t.Name(), "children"))
			if err != nil {
				continue // the thread has ended
			}
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					pids = append(pids, n)
				}
			}
		}
	}
	return pids
}

// compileTime returns the CPU time that the compiler threads of a Java process have
// used so far. It is no cost of the work: a server compiles for a quarter of an hour
// what it then runs for months. A compiler thread that ends takes its count with it.
func compileTime(pid int) (sum time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, task := range tasks {
		if name, times := statTimes(task); strings.HasSuffix(name, " CompilerThre") {
			sum += ticks(times[:2])
		}
	}
	return sum
}

// statTimes reads the name, and the fields utime, stime, cutime and cstime, of a
// process or thread; times is nil once it has ended.
func statTimes(path string) (name string, times []string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil
	}
	// The second field is the name in brackets, which may contain spaces.
	end := bytes.LastIndexByte(b, ')')
	_, name, _ = strings.Cut(string(b[:max(end, 0)]), "(")
	if fields := strings.Fields(string(b[end+1:])); len(fields) >= 15 {
		return name, fields[11:15]
	}
	return "", nil
}

func ticks(fields []string) (sum time.Duration) {
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

// cpuTime returns the CPU time used so far by a process and its descendants, user
// and system, including those that have ended and were waited for.
func cpuTime(pid int) time.Duration {
	var sum time.Duration
	for _, p := range tree(pid) {
		if p == os.Getpid() {
			sum += ownTime()
			continue
		}
		_, times := statTimes(fmt.Sprintf("/proc/%d/stat", p))
		if times == nil {
			continue // it has ended; its parent's count includes it
		}
		// The process clock has utime and stime to the nanosecond.
		var own unix.Timespec
		if unix.ClockGettime(processClock(p), &own) == nil {
			sum += time.Duration(own.Nano())
			times = times[2:]
		}
		sum += ticks(times)
	}
	return sum
}

// processClock returns the CPU clock of a process and all its threads, like
// clock_getcpuclockid(3).
func processClock(pid int) int32 {
	const schedulerTime = 2 // CPUCLOCK_SCHED of the kernel
	return int32(^pid)<<3 | schedulerTime
}

// ownTime returns what this process and its ended children have used.
func ownTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return sum
}

// resident returns the memory currently held by the processes, in bytes. They run
// one binary, so file mappings are counted once, for the process with most of them.
// Reading proportional set sizes would be exact but would slow down what is
// measured: the kernel walks every page for it.
func resident(pids ...int) int64 {
	var private, shared int64
	for _, p := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p))
		if err != nil {
			continue
		}
		if f := strings.Fields(string(b)); len(f) > 2 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			mapped, _ := strconv.ParseInt(f[2], 10, 64)
			private += n - mapped
			shared = max(shared, mapped)
		}
	}
	return (private + shared) * int64(os.Getpagesize())
}

// sampleEvery is how often memory is sampled; a shorter peak may be missed.
const sampleEvery = 25 * time.Millisecond

// watchMemory samples the memory of a process, including its descendants if all is
// set, until the returned function is called, which returns the peak in bytes.
func watchMemory(pid int, all bool) (peak func() int64) {
	stop, done := make(chan struct{}), make(chan int64, 1)
	go func() {
		var most int64
		t := time.NewTicker(sampleEvery)
		defer t.Stop()
		pids := []int{pid}
		for n := 0; ; n++ {
			if all && n%5 == 0 {
				pids = tree(pid)
			}
			most = max(most, resident(pids...))
			select {
			case <-t.C:
			case <-stop:
				done <- most
				return
			}
		}
	}()
	var once sync.Once
	var most int64
	return func() int64 {
		once.Do(func() { close(stop); most = <-done })
		return most
	}
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
