"""Processes that make runs, each one at a time, and what they send about them."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.stop import block_signals, handle_signals, unblock_signals
from runners.torchrun import make_run
from syncline.config import RunConfig
from syncline.operations.streams import lose_text_alone
from syncline.plan import Entry
from syncline.progress import Progress
from syncline.records.lock import Held, held
from syncline.records.store import UNFINISHED, status
from syncline.targets import fault

if TYPE_CHECKING:  # Windows has only one of them
    from multiprocessing.context import ForkServerContext, SpawnContext

    _Context = ForkServerContext | SpawnContext

# What each process would import first, torch above all; and what a network or a data set would import.
PRELOAD = ["syncline.simulation.run", "runners.pool", "scipy.special"]
PRELOAD_FOR = {"bert": ["runners.preload_bert"], "deepfm": ["sklearn.metrics"], "mnist_digits": ["scipy.ndimage"]}

# A process makes one run after another until it is so old; the memory that a longer run leaves ends with its process.
SHARED_S = 2.0
END_S = 5.0  # for runs that are asked to stop a second time to end


@dataclass(frozen=True, slots=True)
class Finished:
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MadeElsewhere:
    owner: str  # the process that makes the run, in one line


@dataclass(frozen=True, slots=True)
class Failed:
    cause: str  # in one line


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was asked to stop."""

    kept: str  # what can be resumed, as of StopRequested; empty: nothing


Message = Progress | Finished | MadeElsewhere | Failed | Stopped


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection  # configs to it, messages from it
    begun: float  # monotonic
    entry: Entry  # the run that it makes now, or made last

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.begun < SHARED_S

    def dismiss(self) -> None:
        self.pipe.close()
        self.process.join()

    def receive(self, results: Path) -> Message:
        with suppress(EOFError, ConnectionResetError):
            message: Message = self.pipe.recv()
            return message
        self.process.join()
        cause = f"its process ended with exit code {self.process.exitcode} (killed, or out of memory?)"
        folder = results / self.entry.config.identity
        with suppress(Held), held(folder):  # the process could not write it itself
            if status(folder) == UNFINISHED:
                (folder / "log.txt").write_text(f"{cause}\n")
        return Failed(cause)


class Pool:
    """The processes that make the runs of a plan.

    Args:
        entries: the runs to be made, by which modules are chosen that are imported once for all processes.
        cores: that are free for each run.
    """

    def __init__(self, entries: Sequence[Entry], results: Path, rerun: bool, cores: int) -> None:
        self._results, self._rerun, self._cores = results, rerun, cores
        self._running, self._idle = list[_Worker](), list[_Worker]()
        # A server process imports all this once and forks: a new process without the 2 s of import.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._context = _context(entries)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def start(self, entry: Entry) -> None:
        """Make this run, in an idle process or a new one."""
        while self._idle:
            worker = self._idle.pop()
            with suppress(OSError):  # it was killed while it was idle
                worker.pipe.send(entry.config)
                worker.entry = entry
                self._running.append(worker)
                return
            worker.dismiss()
        pipe, child_end = self._context.Pipe()
        process = self._context.Process(target=_child, args=(self._results, self._rerun, self._cores, child_end))
        process.start()
        child_end.close()
        pipe.send(entry.config)
        self._running.append(_Worker(process, pipe, time.monotonic(), entry))

    def messages(self, timeout_s: float) -> Iterator[tuple[Entry, Message]]:
        """What the processes have sent, with the run that it is about; any message but Progress is its last."""
        for ready in wait([worker.pipe for worker in self._running], timeout=timeout_s):
            worker = next(worker for worker in self._running if worker.pipe is ready)
            entry, message = worker.entry, worker.receive(self._results)
            if not isinstance(message, Progress):
                self._running.remove(worker)
                if isinstance(message, Finished | MadeElsewhere) and worker.is_fresh:
                    self._idle.append(worker)
                else:
                    worker.dismiss()
            yield entry, message

    def stop(self) -> None:
        """Ask the runs to write their checkpoints and to stop."""
        for worker in self._running:
            worker.process.terminate()

    def close(self) -> None:
        """End all processes. Runs that are still under way were asked to stop before, or nobody waits for them."""
        self.stop()
        ends = time.monotonic() + END_S
        for worker in self._running:
            worker.process.join(max(ends - time.monotonic(), 0.0))
            worker.process.kill()
            worker.process.join()
        for worker in self._idle:
            worker.dismiss()
        self._running, self._idle = [], []


def _context(entries: Sequence[Entry]) -> "_Context":
    """How processes are started: forked, or a new interpreter each where that is not possible."""
    if not hasattr(os, "fork"):
        return get_context("spawn")
    main = sys.modules["__main__"]
    if not Path(getattr(main, "__file__", None) or __file__).exists():  # from standard input: "<stdin>"
        del main.__file__  # which each process would run
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD + _preload_for(entries))
    if entries:
        from multiprocessing import forkserver, resource_tracker

        resource_tracker.ensure_running()  # else the next line would start it, and unblock the signals
        with block_signals():  # a signal to the whole process group must not end the server before the runs
            forkserver.ensure_running()
    return context


def _preload_for(entries: Sequence[Entry]) -> list[str]:
    learned = [entry.config for entry in entries if entry.config.gradients]
    names = dict.fromkeys(name for config in learned for name in (config.model.name, config.dataset.name))
    return [module for name in names for module in PRELOAD_FOR.get(name, ())]


def _child(results: Path, restart: bool, cores: int, pipe: Connection) -> None:
    lose_text_alone()
    handle_signals(ctrl_c=False)
    try:
        unblock_signals()
        with suppress(EOFError, OSError):  # dismissed, or the parent has ended
            while True:
                pipe.send(_make(pipe.recv(), results, restart, cores, pipe))
    except KeyboardInterrupt as stop:
        with suppress(OSError):
            pipe.send(Stopped(kept=str(stop)))


def _make(config: RunConfig, results: Path, restart: bool, cores: int, pipe: Connection) -> Message:
    """Make a run, and send its progress to the parent. Returns the last message about it."""

    def on_progress(progress: Progress) -> None:
        try:
            pipe.send(progress)
        except OSError:  # the parent was killed before it could stop this process
            signal.raise_signal(signal.SIGTERM)

    try:
        return Finished(make_run(config, results, on_progress, restart, cores))
    except Held as error:
        return MadeElsewhere(str(error))
    except Exception as error:
        cause = fault(error) or (str(error) if isinstance(error, ValueError) else "")
        return Failed(cause or f"{type(error).__name__}: {error}")
