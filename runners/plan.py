"""A plan of runs on the cores, one process a run."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from runners.display import PlanDisplay
from runners.one import run_one
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
    waiting, running = left[::-1], list[_Job]()
    elsewhere = list[Entry]()  # somebody else makes these
    next_look = 0.0
    try:
        with display:
            while waiting or running or elsewhere:
                if elsewhere and time.monotonic() >= next_look:
                    free = [entry for entry in elsewhere if owner_of(results / entry.config.identity) is None]
                    elsewhere = [entry for entry in elsewhere if entry not in free]
                    waiting += free  # finished by now, which is seen at once, or to be made here after all
                    next_look = time.monotonic() + LOOK_S
                while waiting and len(running) < jobs:
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
                    failed += 1
                    display.failed(job.entry, content)
                    if fail_fast:
                        waiting.clear()
                        _stop(running)
                display.tick()
    finally:
        _stop(running)
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
            raise KeyboardInterrupt from None

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        summary = run_one(config, results, on_progress, anew)
        messages.send(("finished", summary))
    except KeyboardInterrupt:
        pass
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


def _stop(running: list[_Job]) -> None:
    for job in running:
        job.process.terminate()
    for job in running:
        job.process.join()
    running.clear()
