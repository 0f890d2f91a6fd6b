package sim

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// Child is set in a process that Execute runs.
const Child = "HEADGATE_SIM_CHILD"

// Execute runs a process whose scheduler follows the seed: one P, no garbage collection, a
// generator of the runtime that begins as told, and nothing that preempts a goroutine.
//
// The runtime makes its generator from 16 random bytes that the kernel gives each process.
// They are replaced before the process begins. What preempts is the thread of the runtime's
// monitor, the first that a process starts: on a busy machine it takes a goroutine for one
// that runs for too long. It is stopped when the process says that it has begun.
func Execute(cmd *exec.Cmd, random uint64) error {
	runtime.LockOSThread() // that of the tracer
	defer runtime.UnlockOSThread()
	ready, begun, err := os.Pipe()
	if err != nil {
		return err
	}
	goes, going, err := os.Pipe()
	if err != nil {
		return err
	}
	defer going.Close()
	defer ready.Close()
	cmd.ExtraFiles = []*os.File{begun, goes}
	cmd.Env = append(os.Environ(), Child+"=1", "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	begun.Close()
	goes.Close()
	if err := begin(cmd.Process.Pid, random); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	monitor := 0
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		if monitor, err = stopMonitor(cmd.Process.Pid); err != nil {
			return err
		}
	}
	_, _ = going.Write([]byte{1})
	if monitor > 0 {
		_, _ = syscall.Wait4(monitor, nil, syscall.WALL, nil)
	}
	return cmd.Wait()
}

// begin lets a process begin that stands before its first instruction.
func begin(pid int, random uint64) error {
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		return err
	}
	err := setRandom(pid, random)
	if e := syscall.PtraceDetach(pid); err == nil {
		err = e
	}
	return err
}

func setRandom(pid int, random uint64) error {
	const atRandom = 25
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return err
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.NativeEndian.Uint64(auxv) == atRandom {
			bytes := binary.LittleEndian.AppendUint64([]byte("headgate"), random|1)
			_, err := syscall.PtracePokeData(pid, uintptr(binary.NativeEndian.Uint64(auxv[8:])), bytes)
			return err
		}
	}
	return fmt.Errorf("process %d has no random bytes", pid)
}

// stopMonitor stops the second thread of a process, and returns it.
func stopMonitor(pid int) (thread int, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) < 2 {
		return 0, fmt.Errorf("process %d has the threads %v: %w", pid, tasks, err)
	}
	var threads []int
	for _, t := range tasks {
		n, _ := strconv.Atoi(filepath.Base(t))
		threads = append(threads, n)
	}
	slices.Sort(threads)
	if err := syscall.PtraceAttach(threads[1]); err != nil {
		return 0, err
	}
	_, err = syscall.Wait4(threads[1], nil, syscall.WALL, nil)
	return threads[1], err
}

// AwaitMonitor waits, in the process that was run, until its monitor is stopped. The raw
// system calls let no other thread take over.
func AwaitMonitor() {
	b := [1]byte{1}
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, 3, uintptr(unsafe.Pointer(&b)), 1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_READ, 4, uintptr(unsafe.Pointer(&b)), 1)
}
