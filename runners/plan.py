"""A plan of runs on the cores, as many processes at a time."""

import math
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.display import PlanDisplay, say
from runners.one import check_possible, lacks_parameters, run_one
from runners.stop import StopRequested, block_signals, defer_stop, hear_again, listen
from syncline.config import RunConfig
from syncline.operations.tables import counted
from syncline.plan import Entry, Plan
from syncline.records.environment import cores
from syncline.records.lock import Held, held, owner_of
from syncline.records.store import UNFINISHED, status

if TYPE_CHECKING:  # Windows has but one of them
    from multiprocessing.context import ForkServerContext, SpawnContext

    _Context = ForkServerContext | SpawnContext

# What each process would import first, torch above all; and what those of a network or a data set would.
PRELOAD = ["syncline.simulation.run", "runners.plan", "scipy.special"]
PRELOAD_FOR = {
    "bert": ["runners.preload_bert"],
    "deepfm": ["sklearn.metrics"],
    "mnist_digits": ["scipy.ndimage"],
}

LOOK_S = 2.0  # between two looks at what is made elsewhere
STOP_S = 30.0  # for runs that are told to stop to write their checkpoints
END_S = 5.0  # for runs that are told so again to leave nothing behind


# A process takes one short run after another until it is so old. What a longer run leaves in memory goes with it.
SHARED_S = 2.0


@dataclass(slots=True)
class _Worker:
    """A process that makes runs, one at a time."""

    process: BaseProcess
    pipe: Connection  # to it: configs; from it: (kind, content), see `_made`
    begun: float  # monotonic
    entry: Entry  # what it makes now, or made last

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.begun < SHARED_S


def run_plan(plan: Plan, results: Path, *, jobs: int | None, fail_fast: bool, rerun: bool) -> int:
    """Make the runs of a plan that are not finished, `jobs` at a time, and show how it goes.

    What another process makes is waited for.

    Returns:
        How many failed. With `fail_fast` the first failure stops the others, which stay unfinished.

    Raises:
        StopRequested: this process was told to stop, and has told those that it started.
    """
    left = plan.left(results, rerun)
    for entry in left:
        check_possible(entry.config)
    display = PlanDisplay(plan, done=len(plan.unique()) - len(left))
    if bare := sum(not rerun and lacks_parameters(entry.config, results) for entry in plan.unique()):
        say(f"{bare} of the finished runs left no parameters; rerun=true makes all runs again with them")
    if jobs is None:  # runs of real processes are measured by the clock: one at a time, with the machine to itself
        is_timed = any(entry.config.runner.time_kind == "wall" for entry in left)
        jobs = 1 if is_timed else _cores()
    jobs = min(jobs, len(left))
    failed = 0
    # A server process imports all this once and forks: a fresh process without the 2 s of import.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = _context(left)
    waiting, running, idle = left[::-1], list[_Worker](), list[_Worker]()
    elsewhere = list[Entry]()  # somebody else makes these
    next_look = 0.0
    ends = math.inf  # who is running still then has had its time
    kept = list[str]()  # runs that left a checkpoint
    try:
        with display, defer_stop() as asked:
            while running or ((waiting or elsewhere) and ends == math.inf):
                if asked() is not None and ends == math.inf:
                    say(f"stopping: {counted(len(running), 'run')} to be checkpointed; press Ctrl-C again to stop now")
                    ends = _tell(running)
                if time.monotonic() >= ends:
                    break
                if elsewhere and time.monotonic() >= next_look:
                    free = [entry for entry in elsewhere if owner_of(results / entry.config.identity) is None]
                    elsewhere = [entry for entry in elsewhere if entry not in free]
                    waiting += free  # finished by now, which is seen at once, or to be made here after all
                    next_look = time.monotonic() + LOOK_S
                while waiting and len(running) < jobs and ends == math.inf:
                    entry = waiting.pop()
                    running.append(_given(entry, idle, context, results, rerun))
                    display.started(entry)
                for ready in wait([worker.pipe for worker in running], timeout=0.5):
                    worker = next(worker for worker in running if worker.pipe is ready)
                    entry = worker.entry
                    kind, content = _receive(worker, results)
                    if kind == "progress":
                        display.progressed(entry, content)
                        continue
                    running.remove(worker)
                    if kind in ("finished", "held") and worker.is_fresh:
                        idle.append(worker)
                    else:
                        _dismiss(worker)
                    if kind == "finished":
                        display.finished(entry, content)
                        continue
                    if kind == "held":
                        elsewhere.append(entry)
                        display.held(entry, content)
                        continue
                    if kind == "stopped":
                        kept.append(entry.config.identity)
                        display.stopped(entry)
                        continue
                    failed += 1
                    display.failed(entry, content)
                    if fail_fast:
                        ends = _tell(running)
                display.tick()
            number = asked()
    finally:
        _end(running)
        for worker in idle:
            _dismiss(worker)
    if number is not None:
        raise StopRequested(number, f"{display.words()}, {len(kept)} checkpointed")
    return failed


def _cores() -> int:
    """That this process may use. Not every cluster binds a task to those that it was given."""
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    bound = cores()
    return min(bound, int(given)) if given.isdigit() else bound


def _context(left: Sequence[Entry]) -> "_Context":
    """How processes are started; where none can be forked, each is a new interpreter."""
    if not hasattr(os, "fork"):
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD + _preload_for(left))
    if left:
        from multiprocessing import forkserver, resource_tracker

        resource_tracker.ensure_running()  # else the next line would do it, and hear again
        with block_signals():  # who signals a whole group must not end it: each run has still to write its checkpoint
            forkserver.ensure_running()
    return context


def _preload_for(entries: Sequence[Entry]) -> list[str]:
    learned = [entry.config for entry in entries if entry.config.gradients]
    names = dict.fromkeys(name for config in learned for name in (config.model.name, config.dataset.name))
    return [module for name in names for module in PRELOAD_FOR.get(name, ())]


def _given(entry: Entry, idle: list[_Worker], context: "_Context", results: Path, rerun: bool) -> _Worker:
    """Who makes this run from now on: one of the idle, or a new process."""
    while idle:
        worker = idle.pop()
        with suppress(OSError):  # it was killed while it waited
            worker.pipe.send(entry.config)
            worker.entry = entry
            return worker
        _dismiss(worker)
    pipe, child_end = context.Pipe()
    process = context.Process(target=_child, args=(results, rerun, child_end), daemon=True)
    process.start()
    child_end.close()
    pipe.send(entry.config)
    return _Worker(process, pipe, time.monotonic(), entry)


def _child(results: Path, restart: bool, pipe: Connection) -> None:
    listen(ctrl_c=False)
    try:
        hear_again()
        with suppress(EOFError, OSError):  # dismissed; the parent is gone
            while True:
                pipe.send(_made(pipe.recv(), results, restart, pipe))
    except KeyboardInterrupt:
        with suppress(OSError):
            pipe.send(("stopped", ""))


def _made(config: RunConfig, results: Path, restart: bool, pipe: Connection) -> tuple[str, Any]:
    """Make a run and tell the parent of it.

    Returns:
        ("finished", its summary), ("held", who makes it), ("failed", the cause in one line).
    """

    def on_progress(progress: Any) -> None:
        try:
            pipe.send(("progress", progress))
        except OSError:  # the parent is gone, killed before it could stop us
            signal.raise_signal(signal.SIGTERM)

    try:
        return "finished", run_one(config, results, on_progress, restart)
    except Held as error:
        return "held", str(error)
    except Exception as error:
        return "failed", str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _receive(worker: _Worker, results: Path) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = worker.pipe.recv()
        return message
    except (EOFError, ConnectionResetError):
        worker.process.join()
    cause = f"its process ended with exit code {worker.process.exitcode} (killed, or out of memory?)"
    folder = results / worker.entry.config.identity
    with suppress(Held), held(folder):  # it could not say so itself
        if status(folder) == UNFINISHED:
            (folder / "log.txt").write_text(f"{cause}\n")
    return "failed", cause


def _dismiss(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.join()


def _tell(running: list[_Worker]) -> float:
    """To stop, each when it has written its checkpoint. Returns when they have had their time for that."""
    for worker in running:
        worker.process.terminate()
    return time.monotonic() + STOP_S


def _end(running: list[_Worker]) -> None:
    """Now: whoever is still here has been told before, or cannot be waited for."""
    _tell(running)
    ends = time.monotonic() + END_S
    for worker in running:
        worker.process.join(max(ends - time.monotonic(), 0.0))
        worker.process.kill()
        worker.process.join()
    running.clear()
