"""A plan of runs on the cores, one process a run."""

import math
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from runners.display import PlanDisplay, say
from runners.one import run_one
from runners.stop import SIGNALS, Told, deaf, listen, patience
from syncline.config import RunConfig
from syncline.plan import Entry, Plan
from syncline.records.lock import Held, owner_of

PRELOAD = ["pandas", "syncline.simulation.run", "runners.plan"]  # what each process would import first, torch above all
PRELOAD_FOR = {  # and what those of a network or a data set would: seconds each
    "bert": ["runners.preload_bert"],
    "deepfm": ["sklearn.metrics"],
    "digits": ["sklearn.datasets", "sklearn.model_selection"],
}

LOOK_S = 2.0  # between two looks at what is made elsewhere
STOP_S = 30.0  # for runs that are told to stop to write their checkpoints
END_S = 5.0  # for runs that are told so again to leave nothing behind


@dataclass(slots=True)
class _Job:
    entry: Entry
    process: BaseProcess
    messages: Connection


def run_plan(plan: Plan, results: Path, *, jobs: int | None, fail_fast: bool, rerun: bool) -> int:
    """Make the runs of a plan that are not finished, `jobs` at a time, and show how it goes.

    What another process makes is waited for.

    Returns:
        How many failed. With `fail_fast` the first failure stops the others, which stay unfinished.

    Raises:
        Told: this process was told to stop, and has told those that it started.
    """
    left = plan.left(results, rerun)
    display = PlanDisplay(plan, done=len(plan.unique()) - len(left))
    if jobs is None:  # runs of real processes are measured by the clock: one at a time, with the machine to itself
        is_timed = any(entry.config.runner.time_kind == "wall" for entry in left)
        jobs = 1 if is_timed else _cores()
    jobs = min(jobs, len(left))
    failed = 0
    # A server process imports all this once and forks for each run: a fresh process without the 2 s of import.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD + _preload_for(left))
    resource_tracker.ensure_running()  # else the next line would do it, and hear again
    with deaf():  # who signals a whole group must not end it: each run has still to write its checkpoint
        forkserver.ensure_running()
    waiting, running = left[::-1], list[_Job]()
    elsewhere = list[Entry]()  # somebody else makes these
    next_look = 0.0
    ends = math.inf  # who is running still then has had its time
    kept = list[str]()  # runs that go on later
    try:
        with display, patience() as asked:
            while running or ((waiting or elsewhere) and ends == math.inf):
                if asked() is not None and ends == math.inf:
                    say(f"told to stop: {len(running)} runs write their checkpoints; told again, they end at once")
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
                    messages, child_end = context.Pipe(duplex=False)
                    process = context.Process(
                        target=_child, args=(entry.config, results, rerun, child_end), daemon=True
                    )
                    process.start()
                    child_end.close()
                    running.append(_Job(entry, process, messages))
                    display.started(entry)
                for ready in wait([job.messages for job in running], timeout=0.5):
                    job = next(job for job in running if job.messages is ready)
                    kind, content = _receive(job)
                    if kind == "progress":
                        display.progressed(job.entry, content)
                        continue
                    running.remove(job)
                    job.process.join()
                    if kind == "finished":
                        display.finished(job.entry, content)
                        continue
                    if kind == "held":
                        elsewhere.append(job.entry)
                        display.held(job.entry, content)
                        continue
                    if kind == "stopped":
                        kept.append(job.entry.config.identity)
                        display.stopped(job.entry)
                        continue
                    failed += 1
                    display.failed(job.entry, content)
                    if fail_fast:
                        ends = _tell(running)
                display.tick()
            number = asked()
    finally:
        _end(running)
    if number is not None:
        raise Told(number, f"{display.words()}, {len(kept)} kept as they are")
    return failed


def _cores() -> int:
    """That this process may use. Not every cluster binds a task to those that it was given."""
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    bound = len(os.sched_getaffinity(0))
    return min(bound, int(given)) if given.isdigit() else bound


def _preload_for(entries: Sequence[Entry]) -> list[str]:
    learned = [entry.config for entry in entries if entry.config.gradients]
    names = dict.fromkeys(name for config in learned for name in (config.model.name, config.dataset.name))
    return [module for name in names for module in PRELOAD_FOR.get(name, ())]


def _child(config: RunConfig, results: Path, anew: bool, messages: Connection) -> None:
    def on_progress(progress: Any) -> None:
        try:
            messages.send(("progress", progress))
        except BrokenPipeError:  # the parent is gone, killed before it could stop us
            signal.raise_signal(signal.SIGTERM)

    listen(ctrl_c=False)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # it was born deaf
        summary = run_one(config, results, on_progress, anew)
        messages.send(("finished", summary))
    except KeyboardInterrupt:
        with suppress(BrokenPipeError):
            messages.send(("stopped", ""))
    except Held as error:
        messages.send(("held", str(error)))
    except Exception as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        messages.send(("failed", said))


def _receive(job: _Job) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = job.messages.recv()
        return message
    except EOFError:
        job.process.join()
        return "failed", f"its process ended with exit code {job.process.exitcode} (killed, or out of memory?)"


def _tell(running: list[_Job]) -> float:
    """To stop, each when it has written its checkpoint. Returns when they have had their time for that."""
    for job in running:
        job.process.terminate()
    return time.monotonic() + STOP_S


def _end(running: list[_Job]) -> None:
    """Now: whoever is still here has been told before, or cannot be waited for."""
    _tell(running)
    ends = time.monotonic() + END_S
    for job in running:
        job.process.join(max(ends - time.monotonic(), 0.0))
        job.process.kill()
        job.process.join()
    running.clear()
