"""The keeper of a node: what its first rank of a torchrun job is. It forks the processes of all ranks of the node.

The other ranks end at once: one process of a node imports torch, in place of one for each worker. A fork takes
milliseconds. Threads and CUDA contexts do not survive it, so a keeper has one thread and never initialises CUDA.

A keeper speaks no protocol. It looks which attempt at the run is under way (a file of the record), starts the node's
processes for it, starts again those that were killed or lost the others, and kills those of an attempt that is over.
That of the first node also has the coordinator of the run, with which it ends, and the process that evaluates; the
others end when the run is over.

A keeper is killed when its agent ends, and its processes with it, at once and whatever their state
(PR_SET_PDEATHSIG): a run leaves no process behind. It has a session of its own: Ctrl-C in a terminal reaches torchrun
alone, which sends it on. Its processes ignore the signals that a batch system sends to all processes of a job; the
coordinator asks them for a checkpoint.
"""

import ctypes
import gc
import math
import os
import shlex
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from syncline.config import ConfigError, RunConfig, from_plain
from syncline.live.node.process import MODULE_OF, TRY_AGAIN, Job, note_failure, run
from syncline.live.node.ranks import Announcement, Ranks
from syncline.processes import die_with
from syncline.records.store import ENDED, FAILED, FINISHED, STOPPED, read_run_config, status

EVALUATION = "syncline.live.node.evaluation"  # like the modules of all processes, imported when the keeper begins
MAX_STARTS = 100  # of one process, in one attempt
POLL_S = 0.02  # between two looks at the processes
WATCH_S = 0.25  # between two looks at the record
OVER_S = 1.0  # for processes to end with their connections when their attempt is over
LATE_FILES_S = 10.0  # for a shared file system to show what was written on another host
STORE_LOST_S = 60.0  # without an answer of torchrun's store, while no attempt is under way
STOP_S = 25.0  # for the run to stop, less than torchrun waits
PRELOAD = ("torch", EVALUATION, "scipy.special")
RESUMABLE = 75  # exit code of a rank that was asked to stop: the same command resumes
SIGNALS = [  # not every system has all, and this module is imported on any
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
]
PR_SET_NAME = 15  # of Linux's prctl


@dataclass(slots=True)
class _Process:
    """One process of this node, over all its starts."""

    name: str
    is_alone: bool  # others go on without it; else the attempt is over when the coordinator notices its loss
    job: str = ""  # the attempt that it was started for last
    starts: int = 0  # for this attempt
    due: float | None = 0.0  # monotonic, of its next start for this attempt; None: it is not to be started again
    pid: int = 0  # 0: it does not run
    kill_at: float | None = None  # monotonic

    def is_to_start(self, job: str, now: float) -> bool:
        return not self.pid and (job != self.job or (self.due is not None and self.due <= now))

    def start(self, job: str, body: Callable[[], int]) -> None:
        self.starts = self.starts + 1 if job == self.job else 1
        self.job, self.due, self.kill_at = job, None, None
        self.pid = fork(self.name, body)

    def start_later(self) -> None:
        wait_s = min(0.1 * 2 ** (self.starts - 1), 1.0) if self.is_alone else 1.0
        self.due = time.monotonic() + wait_s

    def ended(self) -> int | None:
        """The exit code of a process that has just ended (negative: the signal that killed it), else None."""
        if not self.pid:
            return None
        pid, code = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.pid = 0
        return os.waitstatus_to_exitcode(code)

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


class Keeper:
    """The processes of one node.

    Args:
        results: the folder of the records.
        words: of torchrun's command line for the run; those of all nodes must be alike.
        coordinate: on the first node, what the coordinator does, with an exit code; it is told whether it was killed
            before.
        evaluation: on the first node, the evaluator's end of the coordinator's line to it.
    """

    def __init__(
        self,
        ranks: Ranks,
        results: Path,
        words: list[str],
        coordinate: Callable[[bool], int] | None = None,
        evaluation: socket.socket | None = None,
    ) -> None:
        self._ranks, self._results, self._words = ranks, results, words
        self._coordinate, self._evaluation = coordinate, evaluation
        self._announcement = Announcement(ranks)
        self._job: Job | None = None  # the attempt under way
        self._config: RunConfig | None = None  # None: the run is not known yet
        self._folder = Path()  # of its record
        self._absent_at = 0.0  # monotonic, when a record was announced of which no attempt is under way; 0: none was
        self._is_over = False  # the run, for all but the coordinator
        self._next_look = 0.0  # monotonic, at the record
        self._is_asked_to_stop = False
        self._untold: list[int] = []  # signals that the coordinator is to be sent
        self._stop_until = math.inf  # monotonic
        self._coordinator = _Process("coordinator", is_alone=True)
        self._evaluator = _Process("evaluator", is_alone=True)
        self._processes: dict[tuple[str, int], _Process] = {}  # by role and index

    def keep(self) -> int:
        """Until the run is over here.

        Returns:
            The exit code of the rank.

        Raises:
            ConfigError: this node is not of the run that is coordinated, or torchrun's store is lost.
        """
        for number in SIGNALS:
            signal.signal(number, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # which a process that starts others may have blocked
        try:
            while (code := self._step()) is None:
                time.sleep(POLL_S)
            return code
        finally:
            for process in (self._coordinator, self._evaluator, *self._processes.values()):
                process.kill()
            for number in SIGNALS:  # torchrun ends a rank that waits for the others by one
                signal.signal(number, signal.SIG_DFL)

    def _stop(self, number: int, frame: object) -> None:
        """The run is asked to stop, which is up to its coordinator."""
        self._is_asked_to_stop = True
        if number != signal.SIGUSR1:  # a notice of a time limit leaves minutes
            self._stop_until = min(self._stop_until, time.monotonic() + STOP_S)
        self._untold.append(number)

    def _step(self) -> int | None:
        """Do what is due. Returns the exit code of the rank; None: the run goes on."""
        now = time.monotonic()
        if self._coordinate is not None and (code := self._keep_coordinator(self._coordinate, now)) is not None:
            return code
        if self._evaluation is not None:
            self._keep_evaluator(self._evaluation, now)
        if now >= self._stop_until:
            return RESUMABLE
        if now >= self._next_look:
            self._look(now)
        self._end_others(now)
        if self._job is not None and not self._is_asked_to_stop:
            self._start(self._job, now)
        if self._coordinate is not None or any(process.pid for process in self._processes.values()):
            return None
        if self._is_asked_to_stop:  # also if the run has ended: torch lets a rank that returned 0 wait for the others
            return RESUMABLE
        return 0 if self._is_over else None

    def _keep_coordinator(self, coordinate: Callable[[bool], int], now: float) -> int | None:
        """Start the coordinator, which is not of an attempt. Returns its exit code, unless it was killed."""
        code = self._coordinator.ended()
        if code is not None:
            if code >= 0:
                return code
            if self._is_asked_to_stop or self._coordinator.starts == MAX_STARTS:
                return RESUMABLE
            self._coordinator.start_later()
        if self._is_asked_to_stop and not self._coordinator.pid:  # before there was one
            return RESUMABLE
        while self._untold and self._coordinator.pid:
            os.kill(self._coordinator.pid, self._untold.pop(0))
        if self._coordinator.is_to_start("run", now):
            was_killed = self._coordinator.starts > 0
            self._coordinator.start("run", lambda: coordinate(was_killed))
        return None

    def _keep_evaluator(self, line: socket.socket, now: float) -> None:
        if self._evaluator.ended() is not None:
            if self._evaluator.starts == MAX_STARTS:
                raise ConfigError(f"the process that evaluates has ended {MAX_STARTS} times; its output says why")
            self._evaluator.start_later()
        if self._evaluator.is_to_start("run", now):
            self._evaluator.start("run", lambda: int(import_module(EVALUATION).evaluate(line)))

    def _look(self, now: float) -> None:
        """See which attempt is under way, and whether the run is over."""
        self._next_look = now + (POLL_S if self._config is None else WATCH_S)
        if self._job is not None:
            self._job = Job.read(self._folder, self._job.name)
        if self._job is not None or self._is_over:
            return
        found = self._announcement.get()
        if found is not None:
            self._job = self._read_job(self._results / found[0], found[1])
        elif self._announcement.silent_s > STORE_LOST_S and not self._is_asked_to_stop:
            where = f"{self._ranks.master_address}:{self._ranks.master_port}"
            raise ConfigError(f"rank {self._ranks.first}: torchrun's store at {where} does not answer")
        if self._job is not None:
            return
        if self._config is not None:
            self._is_over = is_over(self._folder, was_under_way=True)
        elif found is not None:
            folder = self._results / found[0]
            self._is_over = is_over(folder, was_under_way=False)
            self._absent_at = self._absent_at or now
            if now > self._absent_at + LATE_FILES_S and not folder.exists():
                what = f"{folder.absolute()} is not visible here; all hosts must share it"
                raise ConfigError(f"rank {self._ranks.first}: {what}")

    def _read_job(self, folder: Path, name: str) -> Job | None:
        """The attempt that was announced, if it is under way, and of the run that this node takes part in."""
        job = Job.read(folder, name) if self._config is None or folder == self._folder else None
        if job is None:
            return None
        if job.words != self._words:
            rule = f"rank {self._ranks.first} must be started with the same words as rank 0: {shlex.join(job.words)}"
            raise ConfigError(f"{rule}, got {shlex.join(self._words)}")
        if self._config is None:
            self._config, self._folder = from_plain(read_run_config(folder)), folder
            for role, index in self._ranks.processes(self._config):
                import_module(MODULE_OF[role])
                self._processes[role, index] = _Process(f"{role}-{index}", is_alone=role == "worker")
        return job

    def _start(self, job: Job, now: float) -> None:
        for (role, index), process in self._processes.items():
            is_present = role == "shard" or index < job.num_present
            if is_present and process.is_to_start(job.name, now):
                process.start(job.name, partial(run, job, role, index, self._ranks))

    def _end_others(self, now: float) -> None:
        """See which processes have ended, and kill those of attempts that have been over for a while."""
        for (role, index), process in self._processes.items():
            code = process.ended()
            if code is not None and (code < 0 or code in TRY_AGAIN):
                if process.starts < MAX_STARTS:
                    process.start_later()
                else:  # with which the coordinator ends the run
                    why = f"it was killed or lost its shards {MAX_STARTS} times"
                    note_failure(self._folder, role, index, why, "")
            if process.pid and (self._job is None or process.job != self._job.name):
                if process.kill_at is None:
                    process.kill_at = now + OVER_S
                elif now >= process.kill_at:
                    process.kill()


def is_over(folder: Path, was_under_way: bool) -> bool:
    """Whether the run of this record has ended, failed, or was stopped since it was under way."""
    if (folder / ENDED).exists() or (was_under_way and (not folder.exists() or (folder / STOPPED).exists())):
        return True
    return status(folder) in (FINISHED, FAILED)


def fork(name: str, body: Callable[[], int]) -> int:
    """Start a process that does this and exits with what it returns. Returns its process id."""
    import torch

    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    sys.stdout.flush()
    gc.freeze()  # a collection in the process copies no page that holds an object, and ends nothing that is not its own
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # handlers of the parent are not for the child
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return pid
    code = 1
    try:
        for number in SIGNALS:  # a batch system sends them to all processes of a run, of which the coordinator acts
            signal.signal(number, signal.SIG_DFL if name == "coordinator" else signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        die_with(parent)
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
        gc.enable()
        code = body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)  # no exit handler of the keeper may run here


def preload() -> None:
    """Import what all processes need."""
    gc.disable()  # imports leave no garbage, and collections would take a tenth of their time
    for module in PRELOAD:
        import_module(module)
