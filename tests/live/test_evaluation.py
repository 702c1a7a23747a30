"""The process that evaluates the states of a run: forked from the launcher's supervisor, and watched by it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from leaks import pid_of_child, wait_until

from benchmarks.live_run import is_alive, kill
from runners.failures import RunFailed
from runners.observer import Evaluator
from syncline.config import RunConfig, compose
from syncline.live.evaluation import SnapshotEvaluator
from syncline.live.supervisor import Supervisor
from syncline.progress import Totals
from syncline.records.snapshots import write_state
from syncline.records.writer import RecordWriter

pytestmark = [pytest.mark.processes, pytest.mark.core, pytest.mark.xdist_group("supervisor")]


@pytest.fixture
def config() -> RunConfig:
    return compose(["runner=local", "model=softmax_regression", "runner.evaluate=during"])[0]


@pytest.fixture
def record(tmp_path: Path, config: RunConfig) -> Path:
    with RecordWriter(tmp_path / "record", config.as_dict(), with_events=False) as made:
        (made.folder / "log").mkdir()
        return made.folder


@pytest.fixture
def evaluator(config: RunConfig, record: Path, supervisor: Supervisor) -> Iterator[Evaluator]:
    made = Evaluator(config, record, supervisor)
    yield made
    made.close()


def written(folder: Path, weights: torch.Tensor) -> list[Path]:
    path = folder / "state.safetensors"
    write_state(path, {"weights": weights, "buffers": torch.empty(0)}, Totals(4).snapshot(rate=0.1))
    return [path]


def test_it_equals_an_evaluation_in_this_process(config: RunConfig, record: Path, evaluator: Evaluator) -> None:
    torch.manual_seed(1)
    here = SnapshotEvaluator(config)
    assert evaluator.about == {
        "num_train": here.num_train,
        "num_parameters": here.num_parameters,
        "best_possible": here.best_possible,
    }
    paths = written(record, torch.randn(here.num_parameters))
    assert evaluator.row(paths, 1.5) == here.row(list(map(str, paths)), 1.5)
    assert evaluator.is_finite(paths)
    assert not evaluator.is_finite(written(record, torch.full([here.num_parameters], torch.nan)))


def test_during_a_run_it_has_the_lowest_priority_and_it_ends_with_its_connection(
    evaluator: Evaluator, supervisor: Supervisor
) -> None:
    pid = pid_of_child(supervisor)
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    evaluator.close()
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())  # the supervisor has asked how it ended


def test_errors_are_reported(record: Path, evaluator: Evaluator) -> None:
    with pytest.raises(RunFailed, match=r"evaluator 0: .*absent\.safetensors"):
        evaluator.row([record / "absent.safetensors"], 0.0)


def test_a_killed_evaluator_is_named(evaluator: Evaluator, supervisor: Supervisor) -> None:
    kill(pid := pid_of_child(supervisor))
    assert wait_until(lambda: not is_alive(pid))
    with pytest.raises(RunFailed, match="the process that evaluates was killed"):
        evaluator.row([], 0.0)
