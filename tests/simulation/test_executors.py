"""Rounds that are computed ahead of need: in which order, how many of them in vain, and what happens without processes.

That the bits are the same is shown by test_resumption.py, where one process and two make the same runs.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from leaks import wait_until
from torch import Tensor

from benchmarks.live_run import is_alive
from syncline.simulation import executors
from syncline.simulation.executors import SIGNALS, Cores, Round

SIZE = 3
BUFFERS = torch.tensor([5.0])


@dataclass
class Flat:
    weights: Tensor = field(default_factory=lambda: torch.zeros(SIZE))
    buffers: Tensor = field(default_factory=lambda: torch.zeros(1))


@dataclass
class Function:
    flat: Flat = field(default_factory=Flat)


class Local:
    """A worker that pushes its weights plus its count of pushes, and writes down who computed which."""

    def __init__(self, log: int) -> None:
        self.gradient, self.count, self._log = Function(), 0, log

    def __call__(
        self, weights: list[Tensor], buffers: Tensor, batches: int, number: int
    ) -> tuple[float, Tensor, Tensor]:
        os.write(self._log, f"{os.getpid()} {batches} {number}\n".encode())
        if number < 0:
            raise ValueError(f"round {number} of worker {batches}")
        if number == 99:
            signal.pause()
        self.count += 1
        return float(number), torch.cat(weights) + self.count, buffers + 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"count": torch.tensor(self.count)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.count = int(state["count"])


class Log:
    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.reads, False)
        self.lines = list[list[int]]()

    def read(self) -> list[list[int]]:
        """(process, worker, number) of all rounds that were computed so far, in order."""
        try:
            text = os.read(self.reads, 65536).decode()
        except BlockingIOError:
            text = ""
        self.lines += [[int(word) for word in line.split()] for line in text.splitlines()]
        return self.lines


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    os.close(log.reads)
    os.close(log.writes)


@pytest.fixture(autouse=True)
def _no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "TRIAL_S", 0.0)
    monkeypatch.setattr(executors, "WORTH_S", 0.0)


def cores(log: Log, workers: int, processes: int, ahead: int) -> Cores:
    """After the first round, which this process computes."""
    found = Cores([Local(log.writes) for _ in range(workers)], list(range(workers)), processes, ahead)
    found.begin(begun(0, 0))
    found.take(0)
    return found


def begun(worker: int, number: int, due: float = 0.0) -> Round:
    parts = [torch.full((2,), float(worker)), torch.full((1,), float(worker))]
    return Round(worker, number, parts, BUFFERS, due)


def test_another_process_computes_what_this_one_would(log: Log) -> None:
    made = cores(log, workers=2, processes=1, ahead=2)
    try:
        for number in (1, 2):
            for worker in (0, 1):
                made.begin(begun(worker, number))
            for worker in (1, 0):
                loss, pushed, buffers = made.take(worker)
                count = number + (worker == 0)  # what it keeps came back with its first rounds
                assert (loss, pushed.tolist(), buffers.tolist()) == (number, [worker + count] * SIZE, [6.0])
    finally:
        made.close()
    by_process = Counter(process for process, *_ in log.read())
    assert by_process.pop(os.getpid()) == 1
    assert list(by_process.values()) == [4]


def test_what_is_due_first_is_computed_first_and_no_more_is_under_way_than_allowed(log: Log) -> None:
    made = cores(log, workers=5, processes=1, ahead=1)
    try:
        made.begin(begun(4, 1, due=9.0))  # leaves at once: nothing else is known
        for worker, due in enumerate([4.0, 3.0, 2.0, 1.0]):
            made.begin(begun(worker, 1, due))
        made.cancel(3)
        for worker in (4, 2, 1, 0):
            assert made.take(worker)[0] == 1
    finally:
        made.close()
    assert [line[1:] for line in log.read()] == [[0, 0], [4, 1], [2, 1], [1, 1], [0, 1]]
    assert made.in_vain == 0, "what was cancelled had not left"


def test_a_cancelled_round_that_has_left_is_computed_in_vain_and_changes_nothing(log: Log) -> None:
    made = cores(log, workers=2, processes=1, ahead=2)
    try:
        made.begin(begun(1, 1))
        assert wait_until(lambda: [1, 1] in [line[1:] for line in log.read()])
        made.cancel(1)
        made.begin(begun(1, 1))  # the same mini-batch again, at other weights
        assert made.take(1)[1].tolist() == [1.0 + 1] * SIZE, "its first push"
        assert made.in_vain == 1
    finally:
        made.close()


def test_rounds_that_take_no_time_stay_in_this_process(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "WORTH_S", 1000.0)
    made = cores(log, workers=2, processes=2, ahead=2)
    for number in (1, 2):
        made.begin(begun(1, number))
        assert made.take(1)[0] == number
    made.close()
    assert {process for process, *_ in log.read()} == {os.getpid()}


def test_an_error_arises_where_it_would_in_this_process(log: Log) -> None:
    made = cores(log, workers=2, processes=1, ahead=2)
    try:
        made.begin(begun(1, -1))
        with pytest.raises(ValueError, match="round -1 of worker 1") as error:
            made.take(1)
        assert error.traceback[-1].name == "__call__"
    finally:
        made.close()


def test_signals_to_all_processes_of_a_job_end_none_of_them(log: Log, recwarn: pytest.WarningsRecorder) -> None:
    made = cores(log, workers=2, processes=1, ahead=2)
    made.begin(begun(1, 7))
    assert wait_until(lambda: [1, 7] in [line[1:] for line in log.read()])
    (process,) = {line[0] for line in log.read()} - {os.getpid()}
    for each in SIGNALS:
        os.kill(process, each)
    assert made.take(1)[0] == 7
    made.begin(begun(1, 8))
    assert made.take(1)[0] == 8
    made.close()
    assert [process, 1, 8] in log.read()
    assert not recwarn.list


@pytest.mark.parametrize("others", [[], [1, 2]], ids=["taken next", "with others that have not left"])
def test_without_its_processes_a_run_goes_on(log: Log, others: list[int]) -> None:
    made = cores(log, workers=5, processes=2, ahead=3)
    for worker in (3, 4):
        made.begin(begun(worker, 99))
    assert wait_until(lambda: {(3, 99), (4, 99)} <= {tuple(line[1:]) for line in log.read()})
    one, other = {line[0] for line in log.read()} - {os.getpid()}
    for worker in (3, 4):
        made.cancel(worker)
    for worker in (0, *others):
        made.begin(begun(worker, 7))
    os.kill(one, signal.SIGKILL)
    with pytest.warns(UserWarning, match="killed"):
        assert made.take(0)[0] == 7
    assert [made.take(worker)[0] for worker in others] == [7] * len(others)
    made.close()
    assert wait_until(lambda: not is_alive(one) and not is_alive(other))


def test_its_processes_end_with_a_run_that_is_killed(log: Log) -> None:
    run = os.fork()
    if run == 0:
        cores(log, workers=2, processes=1, ahead=1).begin(begun(1, 99))
        signal.pause()
    assert wait_until(lambda: [1, 99] in [line[1:] for line in log.read()])
    (process,) = {line[0] for line in log.read()} - {run}
    assert is_alive(process)
    os.kill(run, signal.SIGKILL)
    os.waitpid(run, 0)
    assert wait_until(lambda: not is_alive(process))
