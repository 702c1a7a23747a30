"""Virtual time: one run in this process, or a plan of runs on the cores, one process a run."""

import os
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from runners.display import PlanDisplay
from syncline.config import RunConfig
from syncline.plan import Entry, Plan
from syncline.records.store import RecordWriter, read_summary
from syncline.records.trackers import start_tracker

PRELOAD = ["syncline.simulation.run"]  # what each process would import first, torch above all


def run_one(config: RunConfig, results: Path, on_progress: Callable[[Any], None]) -> dict[str, Any]:
    """Make one run and its record; whatever an unfinished one left is replaced.

    Returns:
        The summary.

    Raises:
        ValueError: bad input, the record shows as failed; any other error likewise, with its traceback in log.txt.
        KeyboardInterrupt: the record stays unfinished.
    """
    from syncline.simulation.run import simulate  # imports torch

    plain = config.as_dict()
    with RecordWriter(results / config.identity, plain, config.runner.events) as record:
        try:
            tracker = start_tracker(plain["tracker"], record.folder, config.identity, plain)

            def on_evaluation(row: Mapping[str, Any]) -> None:
                record.evaluation(row)
                tracker.evaluation(row)

            summary = simulate(config, on_evaluation, on_progress, record.events)
            record.finish(summary)
            tracker.finish(summary)
        except OSError:
            raise  # said in one line by the record
        except Exception:
            record.fail(traceback.format_exc())
            raise
    return read_summary(record.folder)


@dataclass(slots=True)
class _Job:
    entry: Entry
    process: BaseProcess
    messages: Connection


def run_plan(plan: Plan, results: Path, *, jobs: int | None, fail_fast: bool, rerun: bool) -> int:
    """Make the runs of a plan that are not finished, `jobs` at a time, and show how it goes.

    Returns:
        How many failed. With `fail_fast` the first failure stops the others, which stay unfinished.
    """
    left = plan.left(results, rerun)
    display = PlanDisplay(plan, done=len(plan.unique()) - len(left))
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(left))
    failed = 0
    # A server process imports torch once and forks for each run: a fresh process without the 2 s of import.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    waiting, running = left[::-1], list[_Job]()
    try:
        with display:
            while waiting or running:
                while waiting and len(running) < jobs:
                    entry = waiting.pop()
                    messages, child_end = context.Pipe(duplex=False)
                    process = context.Process(target=_child, args=(entry.config, results, child_end), daemon=True)
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
                    failed += 1
                    display.failed(job.entry, content)
                    if fail_fast:
                        waiting.clear()
                        _stop(running)
                display.tick()
    finally:
        _stop(running)
    return failed


def _child(config: RunConfig, results: Path, messages: Connection) -> None:
    def on_progress(progress: Any) -> None:
        try:
            messages.send(("progress", progress))
        except BrokenPipeError:  # the parent is gone, killed before it could stop us
            raise KeyboardInterrupt from None

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        summary = run_one(config, results, on_progress)
        messages.send(("finished", summary))
    except KeyboardInterrupt:
        pass
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
