"""One process per host imports torch, and all processes of a run are forked from it: the supervisor.

    launcher or agent  --Job, or nothing-->  supervisor  --fork-->  shards and workers, or members
                       <----Ended-----------

A fork takes milliseconds where a fresh process imports torch for seconds. Neither threads nor a CUDA context survive
it, so the supervisor has one thread and never asks for a GPU. It starts a worker that was killed, or that lost its
shards, again; if any other process fails, it kills the rest. Once nothing runs it says why, and can take the next job:
a run that begins again from its checkpoint imports nothing anew.

The supervisor is in a session of its own, so that Ctrl-C in a terminal reaches the launcher alone, and it ignores
SIGUSR1, which a batch system sends to all. It is killed when whoever started it ends, and so are its processes with it,
at once and whatever their state (PR_SET_PDEATHSIG): a run leaves no process behind.
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
from dataclasses import asdict, dataclass
from importlib import import_module

from syncline.live.exits import LINE_LOST, SHARD_GONE
from syncline.live.process import Job, note_failure, run

MOST_STARTS = 100  # of one worker
MAX_MESSAGE_BYTES = 1 << 17  # a host has thousands of processes before its job needs so many
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # of Linux's prctl

# What the libraries read when they are loaded: one thread each. A process sets torch's number itself.
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow's allocator
}
PRELOAD = ("torch", "syncline.assembly", "scipy.special")  # before there is a job
MODULE_OF = {  # what a process imports by its role
    "shard": "syncline.live.shard",
    "worker": "syncline.live.worker",
    "member": "syncline.live.collective",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How the processes of a job ended."""

    process: str = ""  # the first that failed: role and index; empty: none has
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
    """The end of whoever starts it. It imports torch meanwhile; a job that is given before waits for that."""

    def __init__(self) -> None:
        self._is_busy = False
        self._spawn()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def start(self, job: Job) -> None:
        """Start these processes; those of the last job must have ended."""
        assert not self._is_busy
        if self._process.poll() is not None:
            self.close()
            self._spawn()
        self._is_busy = True
        self._tell(json.dumps(asdict(job)).encode())

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        """Until all processes of the job have ended. Returns how; None: they have not, within so many seconds."""
        if not self._is_busy:
            return Ended()
        readable, _, _ = select.select([self._line], [], [], timeout_s)
        if not readable:
            return None
        self._is_busy = False
        try:
            message = self._line.recv(MAX_MESSAGE_BYTES)
        except ConnectionResetError:  # it had not read all that it was told
            message = b""
        return Ended(**json.loads(message)) if message else Ended("the supervisor", self._process.wait())

    def kill(self) -> None:
        """The processes of the job, in whatever state they are; `wait` returns when they are gone."""
        self._tell(b"{}")

    def close(self) -> None:
        """Nothing is left, nor the supervisor."""
        self._process.kill()
        self._process.wait()
        self._line.close()

    def _spawn(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "syncline.live.supervisor"],
                stdin=theirs.fileno(),
                env=os.environ | SINGLE_THREADED,
                start_new_session=True,
            )

    def _tell(self, message: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, as whoever waits for it will hear
            self._line.sendall(message)


@dataclass(slots=True)
class _Process:
    """One of a job's, over all its starts."""

    role: str
    index: int
    starts: int = 0
    due: float = 0.0  # monotonic; when it is to be started, if it does not run

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


class _Running:
    """A job under way."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waiting = [_Process(role, index) for role, index in job.processes]
        self._alive: dict[int, _Process] = {}  # by process id
        for role in dict.fromkeys(process.role for process in self._waiting):
            import_module(MODULE_OF[role])
        gc.freeze()  # else the first collection of each process would copy every page that holds an object

    def look(self) -> Ended | None:
        """See to all of them. Returns how they ended, once they have."""
        for pid, process in list(self._alive.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._alive[pid]
                code = os.waitstatus_to_exitcode(status)
                if not self._comes_back(process, code) and code != 0:
                    self.kill()
                    return Ended(str(process), code)
        now = time.monotonic()
        for process in [each for each in self._waiting if each.due <= now]:
            self._waiting.remove(process)
            process.starts += 1
            self._alive[_forked(self._job, process)] = process
        return None if self._alive or self._waiting else Ended()

    def next_start_s(self) -> float | None:
        """Seconds until a process is to be started again; None: none is."""
        if not self._waiting:
            return None
        return max(0.0, min(process.due for process in self._waiting) - time.monotonic())

    def kill(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        for pid in self._alive:
            os.waitpid(pid, 0)
        self._alive.clear()

    def _comes_back(self, process: _Process, code: int) -> bool:
        """Nobody's fault: a worker was killed, or lost its shards or the launcher."""
        is_lost = code < 0 or code in (SHARD_GONE, LINE_LOST)
        if process.role != "worker" or not is_lost:
            return False
        if process.starts == MOST_STARTS:
            why = f"it was killed or lost its shards {MOST_STARTS} times"
            note_failure(self._job, process.role, process.index, why, "")
            return False
        process.due = time.monotonic() + min(0.1 * 2 ** (process.starts - 1), 1.0)
        self._waiting.append(process)
        return True


def _forked(job: Job, process: _Process) -> int:
    """Returns the new process's id."""
    import torch

    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    sys.stdout.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _be_child(parent, f"{process.role}-{process.index}")
        code = run(job, process.role, process.index)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing of the supervisor's is to run here, nor to hold up the end


def _be_child(parent: int, name: str) -> None:
    """Undo what is the supervisor's own."""
    _die_with(parent)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # in place of the line to whoever started the supervisor
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _die_with(parent: int) -> None:
    """Be killed when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it has ended already


def supervise(line: socket.socket) -> None:
    """Take jobs until whoever gives them is gone."""
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # so that it wakes us
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    running: _Running | None = None
    while True:
        readable, _, _ = select.select([line, woken], [], [], running.next_start_s() if running else None)
        if woken in readable:
            woken.recv(1 << 16)
        ended: Ended | None = None
        if line in readable:
            message = line.recv(MAX_MESSAGE_BYTES)
            if not message:
                return
            job = json.loads(message)
            if job:
                running = _Running(Job(**job))
            elif running:
                running.kill()
                ended = Ended()
        if running and (ended := ended or running.look()):
            running = None
            line.sendall(json.dumps(asdict(ended)).encode())


def main() -> None:
    _die_with(os.getppid())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    gc.disable()  # an import leaves no garbage, and collections would take a tenth of its time
    for module in PRELOAD:
        import_module(module)
    supervise(socket.socket(fileno=0))


if __name__ == "__main__":
    main()
