"""The weights that a run has ended with, as it left them and in its model: the metrics are those of its last row."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from runners.commands import main
from runners.export import FILE
from runners.one import run_one
from syncline.assembly.problem import build_problem
from syncline.config import compose
from syncline.live.node.evaluation import SnapshotEvaluator
from syncline.records.store import read_summary
from syncline.torchvision_compat import import_torchvision

SHORT = ["max_updates=3", "batch_size=8", "dataset.train_size=64", "dataset.test_size=16", "runner.parameters=true"]


@pytest.mark.parametrize(
    ("words", "num_files"),
    [
        (["strategy=asp", "cluster.shards=2", "model=resnet8", "model.width=2"], 2),  # with batch norm's statistics
        (["strategy=dssp", "model=resnet8", "model.width=2", "optimizer.average_decay=0.9"], 1),
        (["strategy=bsp", "strategy.topology=allreduce", "model=softmax_regression"], 1),
        (["strategy=ds_sync", "cluster.workers=4", "model=softmax_regression"], 4),
    ],
    ids=["blocks of two shards", "a moving average", "a collective", "the mean of replicas"],
)
def test_the_parameters_and_a_model_that_loads_the_file_have_the_metrics_of_the_run(
    words: list[str], num_files: int, tmp_path: Path
) -> None:
    config, _ = compose([*words, *SHORT])
    run_one(config, tmp_path, lambda progress: None)
    record = tmp_path / config.identity
    summary = read_summary(record)
    final = summary["final"]
    assert summary["parameters"] == sorted(path.name for path in record.glob("*.safetensors"))
    assert len(summary["parameters"]) == num_files
    row = SnapshotEvaluator(config).row([record / name for name in summary["parameters"]], 0.0)
    assert {metric: row[metric] for metric in final} == final
    assert (row["updates"], row["time_s"]) == (summary["updates"], summary["time_s"])
    assert main(["export", config.identity, "--results", str(tmp_path), "--output", str(tmp_path / "mine")]) == 0
    problem = build_problem(config, torch.device("cpu"))
    problem.flat.module.load_state_dict(load_file(tmp_path / "mine" / FILE))
    found = problem.evaluator()([problem.flat.weights.clone()], problem.flat.buffers.clone())
    assert {name: final[name] for name in found} == found


@pytest.mark.slow
@pytest.mark.xdist_group("torchvision")
def test_a_model_of_transformers_is_read_by_from_pretrained(tmp_path: Path) -> None:
    import_torchvision()
    from transformers import BertForQuestionAnswering

    config, _ = compose(["model=bert_tiny", "dataset=qa_synthetic", "optimizer=adamw", *SHORT, "strategy=asp"])
    run_one(config, tmp_path, lambda progress: None)
    assert main(["export", str(tmp_path / config.identity)]) == 0
    model = BertForQuestionAnswering.from_pretrained(tmp_path / config.identity / "model")
    trained = load_file(tmp_path / config.identity / "parameters-0.safetensors")["weights"]
    assert sum(each.double().sum().item() for each in model.parameters()) == pytest.approx(
        trained.double().sum().item()
    )


def test_a_run_that_has_kept_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = compose([*SHORT[:-1], "model=softmax_regression"])
    run_one(config, tmp_path, lambda progress: None)
    assert main(["export", config.identity, "--results", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "runner.parameters=true" in line
