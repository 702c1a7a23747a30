"""run.py, killed with -9 at any moment of a plan and started again: no run is lost, made twice, or incomplete."""

import importlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from runners import pool
from runners.commands import main
from runners.planning import sweep_plan
from syncline.operations.states import run_states
from syncline.records.environment import environment
from syncline.records.events import read_events
from syncline.records.plans import read_plan
from syncline.records.store import FINISHED, is_identity, read_config, read_environment, read_metrics, read_summary
from syncline.records.writer import RecordWriter

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("killed_plans")]

NUM_KILLS = 12
NUM_RUNS = 6
PLAN = ["-m", f"seed=range(0,{NUM_RUNS})", "strategy=asp", "gradients=false", "epochs=20", "jobs=2"]


def prepare() -> None:
    """Each finished record is noted beside it. What is imported, composed or found out once is quick later."""
    finish, child = RecordWriter.finish, pool._child

    def noted_finish(record: RecordWriter, summary: dict[str, Any]) -> None:
        finish(record, summary)
        with (record.folder.parent / "made.txt").open("a") as made:
            made.write(f"{record.folder.name}\n")

    def alone(results: Path, rerun: bool, cores: int, pipe: Connection) -> None:
        """Holds no other process's end of a pipe, as a process that was not forked from run.py itself."""
        os.closerange(3, pipe.fileno())
        os.closerange(pipe.fileno() + 1, 4096)
        child(results, rerun, cores, pipe)

    RecordWriter.finish = noted_finish  # type: ignore[method-assign]
    pool._child = alone
    pool._context = lambda entries: get_context("fork")  # type: ignore[assignment, return-value]
    for name in pool.PRELOAD:
        importlib.import_module(name)
    sweep_plan(["strategy=asp", "gradients=false"])
    environment()


@pytest.fixture(scope="module")
def apart() -> Iterator[Executor]:
    """A process in which run.py is started by a fork: in milliseconds, not the seconds of its imports."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=prepare) as executor:
        yield executor


def start(*words: str) -> int:
    """Start run.py in a session of its own. Returns its process id."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        sys.argv = ["run.py", *words]
        os._exit(main(["run", *words]))
    return pid


def exit_code(pid: int) -> int:
    """Minus the signal, if one ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def finished_records(results: Path) -> dict[str, tuple[int, int]]:
    """Identity -> which file its summary is; each is read in whole."""
    found = {}
    for folder in results.iterdir():
        if is_identity(folder.name) and (folder / "summary.json").exists():
            assert read_summary(folder)["identity"] == folder.name
            assert read_config(folder)["seed"] == read_summary(folder)["seed"]
            assert read_environment(folder)["packages"]
            assert read_metrics(folder) == []
            assert read_events(folder / "events.arrow").num_rows > 0
            about = (folder / "summary.json").stat()
            found[folder.name] = (about.st_ino, about.st_mtime_ns)
    return found


def planned(results: Path) -> set[str]:
    (path,) = (results / "plans").glob("*.json")
    return set(read_plan(path).once())


def made(results: Path) -> Counter[str]:
    """Run -> how often it was made."""
    return Counter((results / "made.txt").read_text().split())


def two_make_the_same_plan(results: Path) -> None:
    pids = [start(*PLAN, f"results={results}") for _ in range(2)]
    assert [exit_code(pid) for pid in pids] == [0, 0]
    assert made(results) == dict.fromkeys(planned(results), 1)


def plans_are_killed(folder: Path) -> None:
    begun = time.monotonic()
    assert exit_code(start(*PLAN, f"results={folder / 'undisturbed'}")) == 0
    takes_s = time.monotonic() - begun
    chance = random.Random(20)
    num_kills = num_in_the_middle = num_plans = 0
    while num_kills < NUM_KILLS:  # a plan that is finished is followed by another
        num_plans += 1
        results = folder / str(num_plans)
        results.mkdir()
        words = [*PLAN, f"results={results}"]
        finished: dict[str, tuple[int, int]] = {}
        while num_kills < NUM_KILLS:
            pid = start(*words)
            ends = time.monotonic() + chance.uniform(0.0, takes_s)
            if num_kills % 2 and len(finished) < NUM_RUNS:
                ends += 3 * takes_s
                while len(list(results.glob("*/summary.json"))) == len(finished) and time.monotonic() < ends:
                    time.sleep(0.01)
            else:
                time.sleep(max(0.0, ends - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
            if exit_code(pid) == 0:
                break
            num_kills += 1
            now = finished_records(results)
            assert finished.items() <= now.items(), "what is finished stays as it is"
            num_in_the_middle += 0 < len(now) < NUM_RUNS
            finished = now
        assert exit_code(start(*words)) == 0
        now = finished_records(results)
        assert finished.items() <= now.items()
        assert set(now) == planned(results)
        assert {state.state for state in run_states(results, now, {}).values()} == {FINISHED}
        assert not list(results.glob("*.lock"))
        assert set(made(results).values()) == {1}
    assert num_in_the_middle >= 3, "kills came while runs were made"


def test_of_two_that_make_the_same_plan_at_once_each_run_is_made_by_one(tmp_path: Path, apart: Executor) -> None:
    apart.submit(two_make_the_same_plan, tmp_path).result()


def test_a_plan_that_is_killed_at_random_moments_finishes_and_makes_each_run_once(
    tmp_path: Path, apart: Executor
) -> None:
    """Only run.py itself is killed; its processes end as they may. The moments are parts of what the plan takes;
    every second one is when one more run has just been made.
    """
    apart.submit(plans_are_killed, tmp_path).result()
