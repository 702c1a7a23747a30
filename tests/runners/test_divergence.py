"""A run whose parameters have become worthless says so, however late that is seen."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import Command
from torch import Tensor

from runners.observer import Evaluator, LiveObserver
from syncline.assembly.data import shape_of
from syncline.assembly.network import build_flat
from syncline.config import RunConfig, compose
from syncline.learning.flat import FlatModule
from syncline.monitor import RunMonitor, evaluation_row
from syncline.records.snapshots import write_state
from syncline.records.writer import RecordWriter
from syncline.simulation.run import simulate

TOO_LARGE = ["optimizer.lr=1e9", "max_updates=2"]  # finite, and so are both losses that are computed


@pytest.mark.parametrize(
    "words",
    [
        ["strategy=asp"],
        ["strategy=bsp"],
        ["strategy=asp", "eval_every_epochs=0.01"],  # seen by an evaluation before the end
        ["strategy=bsp", "strategy.topology=allreduce", "max_updates=1"],
        ["strategy=ds_sync", "max_updates=1"],
    ],
    ids=" ".join,
)
def test_the_last_update_may_be_what_diverges(words: list[str], tmp_path: Path, command: Command) -> None:
    said = command(*TOO_LARGE, *words, f"results={tmp_path}")
    (record,) = tmp_path.iterdir()
    summary = json.loads((record / "summary.json").read_text(), parse_constant=pytest.fail)
    assert said.code == 1
    assert (summary["status"], summary["ended_by"]) == ("diverged", "diverged")
    assert len((record / "metrics.jsonl").read_text().splitlines()) == 1, "what is worthless is no point of a curve"
    assert "DIVERGED" in said.out.upper()
    again = command(*TOO_LARGE, *words, f"results={tmp_path}")
    assert (again.code, "finished before" in again.out) == (1, True)


def ended_by(folder: Path, config: RunConfig, weights: Tensor, evaluator: Evaluator) -> tuple[str, int]:
    """Why a run of real processes ended that leaves these weights, and the points of its curve.

    The untrained network was evaluated before, and nothing else.
    """
    metrics = {"accuracy": 0.1, "top5": 0.5, "loss": 2.3}
    about = {"time_s": 1.0, "updates": 9, "samples": 288, "train_loss": 1.0, "learning_rate": 0.1, "waits_for": None}
    with RecordWriter(folder / "record", config.as_dict(), with_events=False) as record:
        (record.folder / "log").mkdir()
        monitor = RunMonitor(config, lambda row: None, lambda progress: None)
        monitor.add(evaluation_row(0.0, 0, 0, 1437, metrics))
        observer = LiveObserver(config, record, monitor, evaluator)
        write_state(record.folder / "parameters-0.safetensors", {"weights": weights, "buffers": torch.zeros(0)}, about)
        try:
            return observer.finish("epochs"), len(monitor.curve.rows)
        finally:
            observer.close()


def hide(flat: FlatModule) -> None:
    """No loss shows this parameter: a rectifier hides one that is minus infinity."""
    flat.trained[1].data.fill_(-math.inf)  # the biases of the first layer


@pytest.mark.parametrize(
    ("model", "change", "expected"),
    [
        ("softmax_regression", lambda flat: None, ("epochs", 2)),
        ("softmax_regression", lambda flat: flat.weights.mul_(math.nan), ("diverged", 1)),
        ("lenet", lambda flat: flat.weights.mul_(1e30), ("diverged", 1)),  # the loss alone is not finite
        ("lenet", hide, ("diverged", 2)),
    ],
)
def test_the_parameters_of_real_processes_are_checked(
    model: str,
    change: Callable[[FlatModule], None],
    expected: tuple[str, int],
    tmp_path: Path,
    evaluator_here: Evaluator,
) -> None:
    config, _ = compose(["runner=local", f"model={model}"])
    flat = build_flat(config, shape_of(config), torch.device("cpu"))
    change(flat)
    assert ended_by(tmp_path, config, flat.weights.clone(), evaluator_here) == expected


def test_a_run_none_of_whose_evaluations_is_finite_has_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time; the last state is the second that is evaluated."""

    def add(self: RunMonitor, row: dict[str, object]) -> bool:
        self.has_diverged = True
        return False

    monkeypatch.setattr(RunMonitor, "add", add)
    config, _ = compose(["model=softmax_regression", "max_updates=2", "eval_every_epochs=1000"])
    summary = simulate(config, lambda row: None, lambda progress: None)
    assert (summary["status"], summary["final"]) == ("diverged", None)
