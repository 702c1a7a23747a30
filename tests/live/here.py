"""Runs of real processes whose launcher is this process, and whose supervisor serves the whole session.

Neither imports torch again for a run, which takes longer than most runs. What a user or a batch system does from
outside is tested with `benchmarks.live_run.LiveRun`.
"""

import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from leaks import wait_until

from benchmarks.live_run import is_alive
from runners.observer import LiveObserver
from runners.one import run_one
from runners.stop import StopRequested
from syncline.config import RunConfig, compose
from syncline.live.supervisor import Supervisor
from syncline.records.events import read_events
from syncline.records.snapshots import numbers, read_state
from syncline.records.store import read_metrics
from syncline.simulation.replay import replay


class SharedSupervisor(Supervisor):
    """It outlives the run that it is given to."""

    def close(self) -> None:
        if not self._is_alive:
            self.end()

    def end(self) -> None:
        super().close()


@dataclass(frozen=True)
class Made:
    """A run, and what it said."""

    config: RunConfig
    folder: Path
    summary: dict[str, Any]
    said: str

    @property
    def log(self):
        return read_events(self.folder / "events.arrow").to_pandas()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder)

    @property
    def states(self) -> list[dict]:
        """The parameters that each part has saved at the end."""
        return [read_state(self.folder / name)[0] for name in self.summary["parameters"]]

    def replayed(self) -> dict[str, Any]:
        """The summary of its replay, which must be equal in every bit."""
        again = replay(self.config, self.config, self.folder, lambda row: None, lambda progress: None)
        assert again["replay"]["equal"], again["replay"]
        return again


def pid(folder: Path, role: str, index: int) -> int:
    """The process of the run in this folder that last had this role."""
    return [entry["pid"] for entry in _processes(folder) if (entry["role"], entry["index"]) == (role, index)][-1]


def _processes(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log" / "processes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


When = Callable[[Path], bool]  # whether something holds of a run, given its folder


def has_snapshot(number: int) -> When:
    """The first part of the run has written this snapshot."""
    return lambda folder: (folder / "snapshots" / f"{float(number)}-0.safetensors").exists()


def snapshots_after(when: When, count: int) -> When:
    """The first part of the run has written so many snapshots since `when` held."""
    before: list[float] = []

    def have_come(folder: Path) -> bool:
        newest = max(numbers(folder / "snapshots", 0))
        if not before and when(folder):
            before.append(newest)
        return bool(before) and newest >= before[0] + count

    return have_come


def since(when: When, seconds: float) -> When:
    """`when` has held for so long."""
    met: list[float] = []

    def has_held(folder: Path) -> bool:
        if not met and when(folder):
            met.append(time.monotonic())
        return bool(met) and time.monotonic() - met[0] >= seconds

    return has_held


def stop(folder: Path) -> None:
    """As Ctrl-C does."""
    raise StopRequested(signal.SIGINT)


class Launcher:
    """Makes runs in a folder, each as `syncline run runner=local`."""

    def __init__(self, results: Path, supervisor: SharedSupervisor, patch: pytest.MonkeyPatch, streams) -> None:
        self.results, self.supervisor = results, supervisor
        self._patch, self._streams, self._said = patch, streams, ""

    def __call__(self, *overrides: str, during: Sequence[tuple[When, Callable[[Path], object]]] = ()) -> Made:
        """Make a run; afterwards none of its processes is left, and no secret.

        Args:
            during: conditions, and what is done with the run's folder as soon as each holds, one after another.

        Raises:
            BaseException: as `run_one`.
        """
        config, _ = compose(["runner=local", *overrides])
        folder, tick, steps = self.results / config.identity, LiveObserver.tick, list(during)
        self._streams.readouterr()
        self._said = ""

        def watched(observer: LiveObserver) -> None:
            if steps and steps[0][0](folder):
                steps.pop(0)[1](folder)
            tick(observer)

        with self._patch.context() as patch:
            patch.setattr(LiveObserver, "tick", watched)
            try:
                summary = run_one(config, self.results, lambda progress: None, supervisor=self.supervisor)
            finally:
                pids = [entry["pid"] for entry in _processes(folder)]
                assert wait_until(lambda: not any(map(is_alive, pids)))
                assert not list(folder.glob("secret*"))
        assert not steps, "the run was over before"
        return Made(config, folder, summary, self.said())

    def stopped(self, when: When, *overrides: str) -> Path:
        """Stop such a run as soon as this holds of it. Returns its folder."""
        with pytest.raises(StopRequested) as stopped:
            self(*overrides, during=[(when, stop)])
        folder = self.folder(*overrides)
        assert stopped.value.kept == f"{folder.name} checkpointed"
        return folder

    def folder(self, *overrides: str) -> Path:
        """Of such a run."""
        return self.results / compose(["runner=local", *overrides])[0].identity

    def resumed_after_a_stop(self, when: When, *overrides: str) -> Made:
        """Stop such a run as soon as this holds of it, and make it to its end."""
        self.stopped(when, *overrides)
        return self(*overrides)

    def said(self) -> str:
        """What the run has said so far."""
        self._said += self._streams.readouterr().err
        return self._said

    def has_said(self, *words: str) -> When:
        return lambda folder: all(each in self.said() for each in words)
