"""The parameters that a run in virtual time leaves, if it is asked to."""

from pathlib import Path

import pytest
from commands import Command, made, one_error_line

from syncline.config import compose
from syncline.live.node.evaluation import SnapshotEvaluator
from syncline.records.store import read_summary

SMALL = ["model=softmax_regression", "dataset.train_size=300", "epochs=2"]
LEAVE = "runner.parameters=true"


@pytest.mark.parametrize(
    ("words", "num_files"),
    [
        (["strategy=asp", "cluster.shards=3"], 3),
        (["strategy=dssp", "model=resnet8", "max_updates=5", "optimizer.average_decay=0.9"], 1),  # buffers; an average
        (["strategy=bsp", "strategy.topology=allreduce"], 1),
        (["strategy=ds_sync"], 4),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else None,
)
def test_they_evaluate_to_the_last_metrics_of_the_run(words: list[str], num_files: int, tmp_path: Path) -> None:
    record = made(tmp_path, *SMALL, *words, LEAVE)
    summary = read_summary(record)
    assert summary["parameters"] == sorted(path.name for path in record.glob("*.safetensors"))
    assert len(summary["parameters"]) == num_files
    evaluator = SnapshotEvaluator(compose([*SMALL, *words])[0])
    row = evaluator.row([record / name for name in summary["parameters"]], 0.0)
    assert {metric: row[metric] for metric in summary["final"]} == summary["final"]
    assert (row["updates"], row["time_s"]) == (summary["updates"], summary["time_s"])


@pytest.mark.usefixtures("pool_here")
def test_a_finished_run_says_that_it_has_none_and_how_it_would(tmp_path: Path, command: Command) -> None:
    words = [*SMALL, f"results={tmp_path}"]
    assert command(*words).code == 0
    asked = command(*words, LEAVE)
    assert asked.code == 0
    assert "finished before, without runner.parameters=true; rerun=true makes it again with them" in asked.out
    assert "1 of the finished runs left no parameters" in command("-m", *words, "seed=0", LEAVE).err
    (record,) = tmp_path.glob("dssp-*")
    assert not list(record.glob("*.safetensors"))
    assert "(finished)" in command(*words, LEAVE, "rerun=true").out
    assert (record / "parameters-0.safetensors").exists()
    assert "finished before; rerun=true repeats it" in command(*words, LEAVE).out
    assert "left no parameters" not in command("-m", *words, "seed=0", LEAVE).err


def test_times_alone_have_none(command: Command) -> None:
    line = one_error_line(command("gradients=false", LEAVE))
    assert "runner.parameters=true needs gradients=true" in line
