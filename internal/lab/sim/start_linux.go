package sim

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Child is set in a process that Execute runs.
const Child = "HEADGATE_SIM_CHILD"

// Execute runs this program again with other arguments, and returns what it printed. Its
// scheduler follows a number: one P, no garbage collection, a generator of the runtime that
// begins as requested, and nothing that preempts a goroutine.
//
// The runtime makes its generator from 16 random bytes that the kernel gives each process.
// They are replaced before the process begins. What preempts is the runtime's monitor, the
// first thread that a process starts. On a busy machine it takes a goroutine for one that
// runs for too long. That thread is stopped at its first instruction.
//
// While packages are initialized the runtime passes its P from thread to thread, and
// sometimes starts one thread more. Each draws from the generator, and moves the addresses
// of what is allocated later. A process with one more ends, and is run again.
func Execute(random uint64, args ...string) (out string, err error) {
	runtime.LockOSThread() // that of the tracer
	defer runtime.UnlockOSThread()
	for left := tries; ; left-- {
		var b strings.Builder
		cmd := exec.Command(os.Args[0], args...)
		cmd.Args[0] = "sim" // its length and that of the environment would move what is allocated, too
		cmd.Stdout, cmd.Stderr = &b, &b
		cmd.Env = []string{fmt.Sprintf("%s=%02d", Child, left), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,memprofilerate=0"}
		err := supervise(cmd, random)
		if left == 0 || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != begunOtherwise {
			return b.String(), err
		}
	}
}

const (
	tries          = 40
	begunOtherwise = 97 // an exit code
	threads        = 5  // that a process of Go 1.26 has when its packages are initialized, mostly
)

// Begun is called first in a process that Execute runs.
func Begun() {
	if n, _ := runtime.ThreadCreateProfile(nil); n != threads && os.Getenv(Child) != "00" {
		os.Exit(begunOtherwise)
	}
}

// supervise runs a process.
func supervise(cmd *exec.Cmd, random uint64) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	monitor, err := begin(cmd.Process.Pid, random)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	_, _ = syscall.Wait4(monitor, nil, syscall.WALL, nil) // it ends with the process, and its tracer buries it
	return cmd.Wait()
}

// begin lets a process begin that stands before its first instruction, and returns its
// monitor, which stands there for good.
func begin(pid int, random uint64) (monitor int, err error) {
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		return 0, err
	}
	if err := setRandom(pid, random); err != nil {
		return 0, err
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE); err != nil {
		return 0, err
	}
	for {
		if err := syscall.PtraceCont(pid, 0); err != nil {
			return 0, err
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil || status.Exited() {
			return 0, fmt.Errorf("process %d ended before it had a monitor: %v", pid, err)
		}
		if status.TrapCause() == syscall.PTRACE_EVENT_CLONE {
			break
		}
	}
	thread, err := syscall.PtraceGetEventMsg(pid)
	if err != nil {
		return 0, err
	}
	if _, err := syscall.Wait4(int(thread), nil, syscall.WALL, nil); err != nil {
		return 0, err
	}
	return int(thread), syscall.PtraceDetach(pid)
}

func setRandom(pid int, random uint64) error {
	const atRandom = 25
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return err
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.NativeEndian.Uint64(auxv) == atRandom {
			bytes := binary.LittleEndian.AppendUint64([]byte("headgate"), random|1<<63)
			_, err := syscall.PtracePokeData(pid, uintptr(binary.NativeEndian.Uint64(auxv[8:])), bytes)
			return err
		}
	}
	return fmt.Errorf("process %d has no random bytes", pid)
}
