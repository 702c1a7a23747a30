"""run.py, killed with -9 at any moment of a plan and started again: no run is lost, made twice, or incomplete."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commands import ROOT

from syncline.operations.states import run_states
from syncline.records.events import read_events
from syncline.records.plans import read_plan
from syncline.records.store import FINISHED, is_identity, read_config, read_environment, read_metrics, read_summary

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("killed_plans")]

NUM_KILLS = 12
NUM_RUNS = 6
PLAN = ["-m", f"seed=range(0,{NUM_RUNS})", "strategy=asp", "gradients=false", "epochs=20", "jobs=2"]


class Starter:
    """Starts run.py in milliseconds; see many_starts.py."""

    def __init__(self, made: Path) -> None:
        self._made = made
        self._pids: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("many_starts.py"))],
            cwd=ROOT,
            env={**os.environ, "MADE": str(made), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._answer() == "ready"

    def start(self, *words: str) -> int:
        self._pids.append(int(self._ask(" ".join(words))))
        return self._pids[-1]

    def wait(self) -> int:
        return int(self._ask("wait"))

    def made(self) -> Counter[str]:
        """Record -> how often it was finished."""
        return Counter(self._made.read_text().split() if self._made.exists() else [])

    def end(self) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    starter = Starter(tmp_path_factory.mktemp("made") / "made.txt")
    yield starter
    starter.end()


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


def test_of_two_that_make_the_same_plan_at_once_each_run_is_made_by_one(tmp_path: Path, starter: Starter) -> None:
    for _ in range(2):
        starter.start(*PLAN, f"results={tmp_path}")
    assert [starter.wait() for _ in range(2)] == [0, 0]
    made = {folder: count for folder, count in starter.made().items() if Path(folder).parent == tmp_path}
    assert made == {str(tmp_path / identity): 1 for identity in planned(tmp_path)}


def test_a_plan_that_is_killed_at_random_moments_finishes_and_makes_each_run_once(
    tmp_path: Path, starter: Starter
) -> None:
    """Only run.py itself is killed; its processes end as they may. The moments are parts of what the plan takes;
    every second one is when one more run has just been made.
    """
    begun = time.monotonic()
    starter.start(*PLAN, f"results={tmp_path / 'undisturbed'}")
    assert starter.wait() == 0
    takes_s = time.monotonic() - begun
    chance = random.Random(20)
    num_kills = num_in_the_middle = num_plans = 0
    while num_kills < NUM_KILLS:  # a plan that is finished is followed by another
        num_plans += 1
        results = tmp_path / str(num_plans)
        results.mkdir()
        words = [*PLAN, f"results={results}"]
        finished: dict[str, tuple[int, int]] = {}
        while num_kills < NUM_KILLS:
            pid = starter.start(*words)
            ends = time.monotonic() + chance.uniform(0.0, takes_s)
            if num_kills % 2 and len(finished) < NUM_RUNS:
                ends += 3 * takes_s
                while len(list(results.glob("*/summary.json"))) == len(finished) and time.monotonic() < ends:
                    time.sleep(0.01)
            else:
                time.sleep(max(0.0, ends - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
            if starter.wait() == 0:
                break
            num_kills += 1
            now = finished_records(results)
            assert finished.items() <= now.items(), "what is finished stays as it is"
            num_in_the_middle += 0 < len(now) < NUM_RUNS
            finished = now
        starter.start(*words)
        assert starter.wait() == 0
        now = finished_records(results)
        assert finished.items() <= now.items()
        assert set(now) == planned(results)
        assert {state.state for state in run_states(results, now, {}).values()} == {FINISHED}
        assert not list(results.glob("*.lock"))
    assert num_in_the_middle >= 3, "kills came while runs were made"
    assert set(starter.made().values()) == {1}
