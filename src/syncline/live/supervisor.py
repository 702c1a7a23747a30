"""One process per host imports torch, and all processes of a run are forked from it: the supervisor.

    launcher or agent  --start (Job), kill, evaluate (Job, socket)-->  supervisor  --fork-->  shard, worker, member
                       <--Ended, of what was started-----------------              --fork-->  evaluator

A fork takes milliseconds where a fresh process imports torch for seconds. Neither threads nor a CUDA context survive
it, so the supervisor has one thread and never asks for a GPU. It starts a worker that was killed, or that lost its
shards, again; if any other process fails, it kills the rest. Once nothing runs it says why, and can take the next job:
a run that begins again from its checkpoint imports nothing anew. The launcher's evaluator is no part of a job: it ends
when the launcher closes the socket that it was given.

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
from types import TracebackType
from typing import Self

from syncline.live.exits import CONTROL_LOST, SHARD_LOST
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
    "evaluator": "syncline.live.evaluation",
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
    """The end of whoever starts it, which happens when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_busy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def begin(self) -> None:
        """It is there, and imports torch; what it is told meanwhile it does then."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "syncline.live.supervisor"],
                stdin=theirs.fileno(),
                env=os.environ | SINGLE_THREADED,
                start_new_session=True,
            )

    def start(self, job: Job) -> None:
        """Start these processes; those of the last job must have ended."""
        assert not self._is_busy
        self.begin()
        self._is_busy = True
        self._tell("start", job)

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        """Until all processes of the job have ended. Returns how; None: they have not, within so many seconds."""
        if not self._is_busy:
            return Ended()
        assert self._process is not None
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
        if self._is_busy:
            self._tell("kill")

    def evaluator(self, job: Job) -> socket.socket:
        """Start the evaluator of this record. Returns the socket on which it answers; see evaluation.py."""
        self.begin()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._tell("evaluate", job, theirs.fileno())
        return ours

    def close(self) -> None:
        """Nothing is left, nor the supervisor."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._line.close()
        self._process, self._is_busy = None, False

    def _tell(self, kind: str, job: Job | None = None, *files: int) -> None:
        message = {"kind": kind, "job": None if job is None else asdict(job)}
        with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, as whoever waits for it will hear
            socket.send_fds(self._line, [json.dumps(message).encode()], files)


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
            self._alive[_forked(self._job, process.role, process.index)] = process
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
        is_lost = code < 0 or code in (SHARD_LOST, CONTROL_LOST)
        if process.role != "worker" or not is_lost:
            return False
        if process.starts == MOST_STARTS:
            why = f"it was killed or lost its shards {MOST_STARTS} times"
            note_failure(self._job, process.role, process.index, why, "")
            return False
        process.due = time.monotonic() + min(0.1 * 2 ** (process.starts - 1), 1.0)
        self._waiting.append(process)
        return True


def _forked(job: Job, role: str, index: int, stdin: int | None = None) -> int:
    """A new process, which is this part of the job. Returns its id."""
    import torch

    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    sys.stdout.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _be_child(parent, f"{role}-{index}", os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin)
        code = run(job, role, index)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing of the supervisor's is to run here, nor to hold up the end


def _be_child(parent: int, name: str, stdin: int) -> None:
    """Undo what is the supervisor's own."""
    _die_with(parent)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(stdin, 0)  # in place of the line to whoever started the supervisor
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _die_with(parent: int) -> None:
    """Be killed when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it has ended already


def supervise(line: socket.socket) -> None:
    """Do what is told until whoever tells it is gone."""
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # so that it wakes us
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    running: _Running | None = None
    evaluators: list[int] = []
    while True:
        readable, _, _ = select.select([line, woken], [], [], running.next_start_s() if running else None)
        if woken in readable:
            woken.recv(1 << 16)
            evaluators = [pid for pid in evaluators if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        ended: Ended | None = None
        if line in readable:
            message, files, _, _ = socket.recv_fds(line, MAX_MESSAGE_BYTES, 1)
            if not message:
                return
            told = json.loads(message)
            if told["kind"] == "start":
                running = _Running(Job(**told["job"]))
            elif told["kind"] == "evaluate":
                evaluators.append(_evaluator(Job(**told["job"]), files[0]))
            elif running:
                running.kill()
                ended = Ended()
        if running and (ended := ended or running.look()):
            running = None
            line.sendall(json.dumps(asdict(ended)).encode())


def _evaluator(job: Job, line: int) -> int:
    import_module(MODULE_OF["evaluator"])
    pid = _forked(job, "evaluator", 0, line)
    os.close(line)
    return pid


def main() -> None:
    _die_with(os.getppid())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    gc.disable()  # an import leaves no garbage, and collections would take a tenth of its time
    for module in PRELOAD:
        import_module(module)
    supervise(socket.socket(fileno=0))


if __name__ == "__main__":
    main()
