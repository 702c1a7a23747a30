"""docs/extending.md: the folder that it shows works as it stands, in every command of the page."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import cli
from own import SHOWN, TEXT, using, write
from simulations import ended

from runners.commands import call
from runners.one import run_one
from syncline.assembly.compression import build_compression
from syncline.assembly.local_steps import build_local_rule
from syncline.assembly.problem import build_problem
from syncline.checking.harness import Harness
from syncline.checking.strategy import check_strategy
from syncline.config import ConfigError, compose, from_plain
from syncline.records.store import read_run_config, read_summary
from syncline.simulation.replay import replay
from syncline.torchvision_compat import import_torchvision

COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def my(tmp_path: Path):
    folder = write(tmp_path / "my", SHOWN)
    with using(folder):
        yield folder


@pytest.mark.xdist_group("forked_runs")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.processes] if " check " in command else [])
        for command in COMMANDS
        if "runner=local" not in command
    ],
)
def test_a_command_of_the_page_runs(my: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(my.parent)
    words = shlex.split(command)
    if words[:2] == ["syncline", "check"]:
        code = call(words[1:])
    else:
        assert words[:2] == ["python", "run.py"]
        code = call(["run", *words[2:], "max_updates=5"])  # instead of its epochs
    out = capsys.readouterr().out
    assert code == 0, out
    assert "fault" not in out.replace("no fault", "")


@pytest.mark.processes
def test_the_same_parts_run_as_real_processes(my: Path) -> None:
    (command,) = [command for command in COMMANDS if "runner=local" in command]
    results = my.parent / "results"
    words = [str(my) if word == "my" else word for word in shlex.split(command)[2:]]
    said = cli(*words, f"results={results}")
    assert said.code == 0, said
    (record,) = results.iterdir()
    summary = read_summary(record)
    assert (summary["engine"], summary["strategy"], summary["ended_by"]) == ("live", "bounded", "epochs")
    assert max(map(int, summary["staleness"])) <= 4
    with using(my):
        assert from_plain(read_run_config(record)).identity == record.name


def test_the_strategy_keeps_the_contract_and_its_bound(my: Path) -> None:
    config, _ = compose(["strategy=bounded", "strategy.delay=3"])
    assert config.strategy.staleness_bound == 3
    assert check_strategy(config.strategy).num_events > 1000


def test_the_groups_keep_the_mean_and_spread_to_all(my: Path) -> None:
    assert check_strategy(compose(["strategy=prague"])[0].strategy).sizes[-1] == 40


def test_the_compression_keeps_the_mean_and_its_size(my: Path) -> None:
    compression = build_compression(compose(["compress=qsgd"])[0])
    block, out, total = torch.linspace(-1.0, 2.0, 50), torch.empty(50), torch.zeros(50)
    for seed in range(2000):
        sent = compression.encode(block, seed)
        assert sent.numel() == compression.size(50)
        compression.decode(sent, out)
        total += out
    levels = block.norm() / 8
    torch.testing.assert_close(total / 2000, block, rtol=0, atol=5 * 0.5 * levels.item() / 2000**0.5)


def test_the_local_steps_are_drawn_to_what_was_sent(my: Path) -> None:
    """One worker, whose server takes its weights: H steps of plain SGD on each loss and mu/2 |w - sent|^2."""
    words = ["strategy=asp", "cluster.workers=1", "model=net", "dataset=waves", "epochs=null", "max_updates=3"]
    words += ["local=prox", "local.mu=2.0", "optimizer.lr=1", "optimizer.momentum=0"]
    config, _ = compose([*words, "local.optimizer={name: sgd, lr: 0.05, momentum: 0}"])
    problem = build_problem(config, torch.device("cpu"))
    batches, weights = problem.batches(config, 0), problem.flat.weights.clone()
    for number in range(3):
        sent = weights.clone()
        for place in range(4 * number, 4 * number + 4):
            _, gradient, _ = problem.gradient([weights], problem.flat.buffers.clone(), batches.take(place))
            weights = weights - 0.05 * (gradient + 2.0 * (weights - sent))
    torch.testing.assert_close(ended(config)[0], weights, rtol=1e-4, atol=1e-6)


def test_local_steps_of_ones_own_need_an_optimizer(my: Path) -> None:
    with pytest.raises(ConfigError, match="optimizer must be set with local=prox, which is your own, got None"):
        compose(["local=prox", "local.optimizer=null"])


def test_local_steps_of_another_class_are_one_line(my: Path) -> None:
    inner = "optimizer: {name: sgd, lr: 0.05}"
    write(
        my, {"nothing.py": "class Nothing:\n    pass\n", "local/nothing.yaml": f"_target_: nothing.Nothing\n{inner}\n"}
    )
    with pytest.raises(ConfigError, match=r"must return a syncline\.learning\.local_steps\.LocalRule, got Nothing"):
        build_local_rule(compose(["local=nothing"])[0])


@pytest.mark.processes
def test_the_compression_is_replayed_in_every_bit(my: Path) -> None:
    words = ["strategy=asp", "compress=qsgd", "compress.feedback=true", "model=net", "dataset=waves", "cluster=lab"]
    words += ["runner=local", "max_updates=20"]
    said = cli("--config-dir", str(my), *words, f"results={my.parent / 'results'}")
    assert said.code == 0, said
    (record,) = (my.parent / "results").iterdir()
    with using(my):
        config, _ = compose(words)
        again = replay(config, config, record, lambda row: None, lambda progress: None)
    assert again["replay"]["equal"], again["replay"]


def test_a_compression_without_its_methods_is_one_line(my: Path) -> None:
    write(my, {"nothing.py": "class Nothing:\n    pass\n", "compress/nothing.yaml": "_target_: nothing.Nothing\n"})
    with pytest.raises(ConfigError, match="must return a compression, with size, encode and decode"):
        build_compression(compose(["compress=nothing"])[0])


def test_without_delay_it_is_bsp(my: Path) -> None:
    harness = Harness(compose(["strategy=bounded", "strategy.delay=0"])[0].strategy, 3)
    for worker in (2, 0, 1):
        commands = harness.push(worker)
    assert [str(command).partition("(")[0] for command in commands] == ["Apply", "Grant", "Grant", "Grant"]
    assert harness.version == 1


@pytest.mark.parametrize(
    "file",
    [
        "_target_: torchvision.models.shufflenet_v2_x0_5\nweights: null\nnum_classes: 10\n",
        pytest.param(
            "_target_: timm.create_model\nmodel_name: test_resnet.r160_in1k\nnum_classes: 10\n", marks=pytest.mark.slow
        ),
    ],
    ids=["torchvision", "timm"],
)
def test_a_model_of_another_package_learns(my: Path, tmp_path: Path, file: str) -> None:
    write(my, {"model/foreign.yaml": file})
    sizes = ["dataset.train_size=16", "dataset.test_size=4", "batch_size=4", "cluster.workers=1"]
    config, _ = compose(["model=foreign", "dataset=glyphs10", *sizes, "strategy=asp", "max_updates=2"])
    summary = run_one(config, tmp_path / "results", lambda progress: None)
    assert summary["updates"] == 2
    assert config.model._source_ == "", "the source of an installed package is not hashed"


@pytest.mark.slow
def test_a_model_of_transformers_learns_from_tokens_in_an_array(my: Path, tmp_path: Path) -> None:
    import_torchvision()  # transformers imports it, and cannot where its operators are absent
    generator = np.random.default_rng(0)
    tokens = {part: generator.integers(0, 100, (size, 12)) for part, size in (("train", 96), ("test", 24))}
    arrays = {f"x_{part}": found for part, found in tokens.items()}
    arrays |= {f"y_{part}": (found[:, 0] > 50).astype(int) for part, found in tokens.items()}
    np.savez(tmp_path / "words.npz", **arrays)
    words = ["model=sentences", "dataset=arrays", f"dataset.path={tmp_path / 'words.npz'}", "max_updates=5"]
    config, _ = compose(words)
    run_one(config, tmp_path / "results", lambda progress: None)
    summary = json.loads((tmp_path / "results" / config.identity / "summary.json").read_text())
    assert summary["updates"] == 5
