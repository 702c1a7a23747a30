"""The supervisor: the one process of a host that imports torch, from which all processes of a run are forked.

    launcher or agent  --start, add (Job), kill, evaluate (Job, socket)-->  supervisor  --fork-->  shard, worker, member
                       <--Ended (how the job's processes ended)------              --fork-->  evaluator

A fork takes milliseconds, where a new process would import torch for seconds. Threads and CUDA contexts do not survive
a fork, so the supervisor has one thread and never initialises CUDA. It restarts a worker that was killed or lost its
shards; if any other process fails, it kills the rest. When no process is left it reports why, and can take the next
job: a run that restarts from its checkpoint imports nothing again. The launcher's evaluator is not part of a job: it
ends when the launcher closes the socket that it was given.

The supervisor has a session of its own, so that Ctrl-C in a terminal reaches the launcher alone. It and its processes
ignore SIGUSR1, SIGTERM and SIGHUP, which a batch system sends to all processes: the launcher asks them for a
checkpoint, and ends them by SIGKILL. The supervisor is killed when its parent ends, and its processes with it, at once
and whatever their state (PR_SET_PDEATHSIG): a run leaves no process behind.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module

from syncline.live.process import CONTROL_LOST, MODULE_OF, SHARD_LOST, Job, note_failure, run

SUPERVISOR = "the supervisor"  # as what ended
MAX_STARTS = 100  # of one worker
MAX_MESSAGE_BYTES = 1 << 17  # enough for a job of thousands of processes
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # of Linux's prctl

# Read by libraries when they are loaded: one thread each. Every process sets the number of torch's threads itself.
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow's allocator
}
PRELOAD = ("torch", "syncline.assembly", "scipy.special")  # before the first job


@dataclass(frozen=True, slots=True)
class Ended:
    """How the processes of a job ended."""

    process: str = ""  # the first that failed: role and index, or SUPERVISOR; empty: none
    code: int = 0  # its exit code; negative: the signal that killed it

    @property
    def why(self) -> str:
        """What failed; empty: nothing."""
        if not self.process:
            return ""
        if self.code < 0:
            return f"{self.process} was killed by {signal.Signals(-self.code).name}"
        return f"{self.process} ended with exit code {self.code}"


class Supervisor:
    """The parent's end; the process is started when it is first needed, and dies with the thread that starts it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.is_busy = False  # with a job

    def begin(self) -> None:
        """Start the process, unless it runs, or a job has lost it; it imports torch and handles messages afterwards."""
        if self.is_busy or self._is_alive:
            return
        self.close()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "syncline.live.supervisor"],
                stdin=theirs.fileno(),
                env=os.environ | SINGLE_THREADED,
                start_new_session=True,
            )

    def start(self, job: Job) -> None:
        """Start the processes of this job; those of the last one must have ended."""
        assert not self.is_busy
        self.begin()
        self.is_busy = True
        self._send("start", job)

    def add(self, job: Job) -> None:
        """Start the processes of this job, too; they end with those that run already."""
        self._send("add", job)

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        """Wait until all processes of the job have ended. Returns how; None: not within so many seconds."""
        if not self.is_busy:
            return Ended()
        assert self._process is not None
        readable, _, _ = select.select([self._socket], [], [], timeout_s)
        if not readable:
            return None
        self.is_busy = False
        try:
            message = self._socket.recv(MAX_MESSAGE_BYTES)
        except ConnectionResetError:  # it ended with unread messages
            message = b""
        return Ended(**json.loads(message)) if message else Ended(SUPERVISOR, self._process.wait())

    def kill(self) -> None:
        """Kill the processes of the job, whatever their state; `wait` returns when they have ended."""
        if self.is_busy:
            self._send("kill")

    def evaluator(self, job: Job) -> socket.socket:
        """Start the evaluator of this record, from any thread once the process was started.

        Returns:
            The socket on which it answers (evaluation.py); closed at its other end if the process has ended.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._send("evaluate", job, theirs.fileno())
        return ours

    @property
    def is_lost(self) -> bool:
        """It has ended in the middle of a job, which `wait` reports."""
        return self.is_busy and not self._is_alive

    @property
    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End all processes and the supervisor."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._socket.close()
        self._process, self.is_busy = None, False

    def _send(self, kind: str, job: Job | None = None, *files: int) -> None:
        message = {"kind": kind, "job": None if job is None else asdict(job)}
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, which `wait` reports
            socket.send_fds(self._socket, [json.dumps(message).encode()], files)


@dataclass(slots=True)
class _Process:
    """One process of a job, over all its starts."""

    role: str
    index: int
    starts: int = 0
    due: float = 0.0  # monotonic; when to start it, if it does not run

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


class _Running:
    """The processes of the current job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waiting = [_Process(role, index) for role, index in job.processes]
        self._alive: dict[int, _Process] = {}  # by process id
        for role in dict.fromkeys(process.role for process in self._waiting):
            import_module(MODULE_OF[role])
        gc.freeze()  # or the first collection in each process would copy every page that holds an object

    def add(self, job: Job) -> None:
        """Start the processes of this job beside the others."""
        self._waiting += [_Process(role, index) for role, index in job.processes]
        self._job = replace(self._job, processes=[*self._job.processes, *job.processes])

    def check(self) -> Ended | None:
        """Restart and kill what is due. Returns how the processes ended, once they have."""
        for pid, process in list(self._alive.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._alive[pid]
                code = os.waitstatus_to_exitcode(status)
                if not self._restarts(process, code) and code != 0:
                    self.kill()
                    return Ended(str(process), code)
        now = time.monotonic()
        for process in [each for each in self._waiting if each.due <= now]:
            self._waiting.remove(process)
            process.starts += 1
            self._alive[_fork(self._job, process.role, process.index)] = process
        return None if self._alive or self._waiting else Ended()

    def next_start_s(self) -> float | None:
        """Seconds until a process is to be restarted; None: none is."""
        if not self._waiting:
            return None
        return max(0.0, min(process.due for process in self._waiting) - time.monotonic())

    def kill(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        for pid in self._alive:
            os.waitpid(pid, 0)
        self._alive.clear()

    def _restarts(self, process: _Process, code: int) -> bool:
        """Schedule a restart of a worker that was killed, or that lost its shards or the launcher."""
        is_lost = code < 0 or code in (SHARD_LOST, CONTROL_LOST)
        if process.role != "worker" or not is_lost:
            return False
        if process.starts == MAX_STARTS:
            why = f"it was killed or lost its shards {MAX_STARTS} times"
            note_failure(self._job, process.role, process.index, why, "")
            return False
        process.due = time.monotonic() + min(0.1 * 2 ** (process.starts - 1), 1.0)
        self._waiting.append(process)
        return True


def _fork(job: Job, role: str, index: int, stdin: int | None = None) -> int:
    """Start this process of the job. Returns its process id."""
    import torch

    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    sys.stdout.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _become_child(parent, f"{role}-{index}", os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin)
        code = run(job, role, index)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # no exit handler of the supervisor may run here


def _become_child(parent: int, name: str, stdin: int) -> None:
    """Undo the supervisor's own settings."""
    _die_with(parent)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(stdin, 0)  # in place of the supervisor's socket
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _die_with(parent: int) -> None:
    """Be killed when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it has ended already


def leave_signals_to_launcher() -> None:
    """Ignore the signals that a batch system sends to all processes of a run."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def supervise(parent: socket.socket) -> None:
    """Handle the parent's messages until it ends."""
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # so that it wakes `select`
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    running: _Running | None = None
    evaluators: list[int] = []
    while True:
        readable, _, _ = select.select([parent, woken], [], [], running.next_start_s() if running else None)
        if woken in readable:
            woken.recv(1 << 16)
            evaluators = [pid for pid in evaluators if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        ended: Ended | None = None
        if parent in readable:
            message, files, _, _ = socket.recv_fds(parent, MAX_MESSAGE_BYTES, 1)
            if not message:
                return
            request = json.loads(message)
            if request["kind"] == "start":
                running = _Running(Job(**request["job"]))
            elif request["kind"] == "evaluate":
                import_module(MODULE_OF["evaluator"])
                evaluators.append(_fork(Job(**request["job"]), "evaluator", 0, files[0]))
                os.close(files[0])
            elif running and request["kind"] == "add":
                running.add(Job(**request["job"]))
            elif running:
                running.kill()
                ended = Ended()
        if running and (ended := ended or running.check()):
            running = None
            parent.sendall(json.dumps(asdict(ended)).encode())


def main() -> None:
    _die_with(os.getppid())
    leave_signals_to_launcher()
    gc.disable()  # imports leave no garbage, and collections would take a tenth of their time
    for module in PRELOAD:
        import_module(module)
    supervise(socket.socket(fileno=0))


if __name__ == "__main__":
    main()
