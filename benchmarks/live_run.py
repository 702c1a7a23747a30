"""Real runs as a user starts them: run.py in its own process, observed (and killed) from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.config import RunConfig, compose
from syncline.records.store import read_summary

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 150.0  # on a loaded machine
MARK = "LIVE_RUN"  # in the environment of all processes of a run


class LiveRun:
    """`python run.py runner=local ...` under way.

    Args:
        overrides: another runner may be among them.
        on: words before the command.
    """

    def __init__(self, results: Path, *overrides: str, on: Sequence[str] = (), **environment: str) -> None:
        own = [] if any(word.startswith("runner=") for word in overrides) else ["runner=local"]
        self.words = [*own, f"results={results}", *overrides]
        self.config: RunConfig = compose(self.words)[0]
        self.folder = results / self.config.identity
        results.mkdir(exist_ok=True)
        self._output = (results / f"output-{time.monotonic_ns()}.txt").open("w+")
        self.process = subprocess.Popen(
            [*on, sys.executable, "run.py", *self.words],
            cwd=ROOT,
            env=os.environ | environment | {MARK: str(self.folder)},
            stdout=self._output,
            stderr=self._output,
        )

    def wait(self, expected: int = 0, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for its end. Returns what it printed."""
        code = self.process.wait(timeout_s)
        self._output.seek(0)
        output = self._output.read()
        self._output.close()
        assert code == expected, output
        return output

    def kill_launcher(self) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()

    def wait_for_snapshot(self, number: int) -> None:
        """Wait until the first shard has written it."""
        self.until(lambda: (self.folder / "snapshots" / f"{float(number)}-0.safetensors").exists())

    def pid(self, role: str, index: int) -> int:
        """The process that last had this role."""
        return pid_of(self.folder, role, index)

    def keeper(self, worker: int) -> int:
        """The rank that has this worker."""
        return parent(self.pid("worker", worker))

    def coordinator(self) -> int:
        """Raises StopIteration if it is about to be started again."""
        return next(pid for pid in children(self.keeper(0)) if name_of(pid) == "coordinator")

    def summary(self) -> dict[str, Any]:
        return read_summary(self.folder)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for this while the run is under way."""
        ends = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process.poll() is None, self.wait()
            assert time.monotonic() < ends, "it took too long"
            time.sleep(0.02)

    def output(self) -> str:
        """What it has printed so far."""
        return Path(self._output.name).read_text()

    def wait_for_output(self, words: str) -> None:
        """Wait until it has printed this."""
        self.until(lambda: words in self.output())

    def signal_ranks(self, number: int) -> None:
        """Send it to all processes of this run but the launcher."""
        for pid in self.alive():
            if pid != self.process.pid:
                with suppress(ProcessLookupError):  # it has ended with another one
                    os.kill(pid, number)

    def left_over(self) -> list[str]:
        """Processes of this run that are alive."""
        return list(self.alive().values())

    def alive(self) -> dict[int, str]:
        """Its processes, with their names and commands."""
        marked, found = f"{MARK}={self.folder}".encode(), {}
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                pid, is_ours = int(path.parent.name), marked in path.read_bytes().split(b"\0")
                if is_ours and is_alive(pid):
                    command = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[pid] = f"{name_of(pid)}: {command}"
            except OSError:
                continue  # it has ended, or is not ours
        return found

    def has_ended_cleanly(self) -> bool:
        """Only its record is left; killed processes get a moment to end."""
        ends = time.monotonic() + 2
        while self.left_over() and time.monotonic() < ends:
            time.sleep(0.02)
        return self.left_over() == [] and not list(self.folder.glob("attempt-*"))


@dataclass(frozen=True, slots=True)
class Absence:
    """What a shard's log says of a worker that has left and joined again; seconds of the run."""

    began_at: float  # its last push
    left_at: float
    joined_at: float
    others_at: tuple[float, ...]  # pushes of the others in between

    @property
    def longest_pause_s(self) -> float:
        return max(after - before for before, after in pairwise([self.began_at, *self.others_at, self.joined_at]))


def absences(log: "pd.DataFrame") -> Iterator[Absence]:
    """In order. Those of which a restart has forgotten the beginning or the end are left out."""
    pushed = log[log.kind == "pushed"]
    left = log[log.kind == "left"]
    for worker, left_at in zip(left.worker.tolist(), left["at"].tolist(), strict=True):
        own = pushed[(pushed.worker == worker) & (pushed["at"] <= left_at)]["at"]
        back = log[(log.kind == "joined") & (log.worker == worker) & (log["at"] >= left_at)]["at"]
        if len(own) and len(back):
            others = pushed[(pushed.worker != worker) & pushed["at"].between(own.max(), back.min())]["at"]
            yield Absence(own.max(), left_at, back.min(), tuple(others))


def check_mini_batches(log: "pd.DataFrame", num_workers: int) -> None:
    """Each was pushed once, in order, and then used or discarded once, but for what is pending at the end.

    Args:
        log: of one shard, or of a collective.

    Raises:
        AssertionError: one was not.
    """
    pushed = log[log.kind == "pushed"]
    for worker, own in pushed.groupby("worker"):
        iterations = own.value.astype(int).tolist()
        assert iterations == list(range(len(iterations))), (worker, iterations)
    done = log[log.kind.isin(["applied", "discarded"])].push
    assert done.is_unique
    assert set(done) <= set(pushed.push)
    assert len(pushed) - len(done) <= num_workers, (len(pushed), len(done))


def processes_of(folder: Path) -> list[dict[str, Any]]:
    """All processes that the run with this folder has started so far."""
    path = folder / "log" / "processes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def pid_of(folder: Path, role: str, index: int) -> int:
    """The process of the run in this folder that last had this role."""
    entries = processes_of(folder)
    return int([entry["pid"] for entry in entries if (entry["role"], entry["index"]) == (role, index)][-1])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name_of(pid: int) -> str:
    """What a process calls itself: worker-2, shard-0, coordinator."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def is_alive(pid: int) -> bool:
    """The process is neither ended nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
