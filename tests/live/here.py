"""Runs of real processes whose coordinator is this process, and whose keepers are forked from one that serves all runs.

None imports torch again for a run, which takes longer than most runs. What a user or a batch system does from
outside is tested with `benchmarks.live_run.LiveRun`.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from leaks import wait_until
from simulations import finished
from torch import Tensor
from torch.distributed import TCPStore

from benchmarks.live_run import is_alive, processes_of
from runners.observer import LiveObserver
from runners.one import run_one
from runners.stop import StopRequested
from syncline.config import RunConfig, compose
from syncline.live.node.keeper import Keeper, die_with
from syncline.live.node.process import MODULE_OF
from syncline.live.node.ranks import Place, Ranks
from syncline.records.events import read_events
from syncline.records.snapshots import numbers, read_state
from syncline.records.store import read_metrics
from syncline.simulation.replay import replay

END_S = 10.0  # for the keepers to end
PRELOAD = ["scipy.special", *MODULE_OF.values(), "runners.rank", "live.here"]


def server() -> Any:
    """The process that has imported all before, as a context of multiprocessing: its processes are forks of it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


class Job:
    """What torchrun is to a run of this host: a store, and a keeper of all ranks.

    The keeper is forked from a process that has imported all before.
    """

    def __init__(self, config: RunConfig, results: Path, words: list[str]) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ranks = Ranks(0, config.num_ranks, config.num_ranks, 1, "127.0.0.1", self._store.port, 0)
        self.place, context = Place(ranks, words, ours), server()
        self._is_over = context.Event()
        self.keeper = context.Process(target=keep, args=(ranks, results, words, theirs, self._is_over))
        self.keeper.start()
        theirs.close()

    def end(self) -> int | None:
        """The run is over. Returns the keeper's exit code."""
        self._is_over.set()
        self.keeper.join(END_S)
        self.keeper.kill()
        self.keeper.join()
        self.place.line.close()
        code: int | None = self.keeper.exitcode
        return code


def keep(ranks: Ranks, results: Path, words: list[str], line: socket.socket, is_over: Any) -> None:
    """Be the keeper; the coordinator is elsewhere, and the process in its place waits for the end."""
    die_with(os.getppid())
    raise SystemExit(Keeper(ranks, results, words, lambda was_killed: int(not is_over.wait()), line).keep())


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

    def in_virtual_time(self) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Tensor]]]:
        """The same run in virtual time: its summary, its curve, and the parameters of each part at its end."""
        return finished(self.config)

    def replayed(self) -> dict[str, Any]:
        """The summary of its replay, which must be equal in every bit."""
        again = replay(self.config, self.config, self.folder, lambda row: None, lambda progress: None)
        assert again["replay"]["equal"], again["replay"]
        return again


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

    def __init__(self, results: Path, patch: pytest.MonkeyPatch, streams) -> None:
        self.results = results
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

        job = Job(config, self.results, ["runner=local", *overrides])
        with self._patch.context() as patch:
            patch.setattr(LiveObserver, "tick", watched)
            try:
                summary = run_one(config, self.results, lambda progress: None, place=job.place)
            finally:
                code = job.end()
                pids = [entry["pid"] for entry in processes_of(folder)]
                assert wait_until(lambda: not any(map(is_alive, pids)))
                assert not list(folder.glob("attempt-*"))
        assert code == 0
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
