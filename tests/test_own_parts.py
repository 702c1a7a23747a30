"""Parts of the user's own in configs and records: composing, identity, faults in one line."""

import dataclasses
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from commands import cli
from own import SHOWN, using, write

from runners import commands
from runners.commands import call
from runners.judging import declared_judging
from runners.one import run_one
from syncline.assembly.parameters import build_update
from syncline.assembly.problem import build_problem
from syncline.config import ConfigError, RunConfig, choices, compose, from_plain
from syncline.config.folders import use
from syncline.records.outcomes import read_outcome
from syncline.records.store import FAILED, read_metrics, read_run_config, read_summary, status
from syncline.server.shard import Deadlock
from syncline.targets import TargetError
from syncline.timing.distributions import Constant, Exponential, Gamma
from tests.refusals import refusal

OWN = ["model=net", "dataset=waves", "task=smooth", "optimizer=nadam", "strategy=bounded", "cluster=lab"]
SHORT = ["max_updates=4", "dataset.train_size=96", "dataset.test_size=24", "batch_size=8"]


@pytest.fixture
def my(tmp_path: Path) -> Iterator[Path]:
    folder = write(tmp_path / "my", SHOWN)
    with using(folder):
        yield folder


def line_of(*words: str) -> str:
    return refusal((ConfigError, TargetError), compose, words)


def test_keys_have_the_types_of_their_values(my: Path) -> None:
    config, _ = compose([*OWN, "model.width=4", "dataset.noise=1", "optimizer.lr=1e-3", "strategy.delay=2"])
    assert (config.model.width, config.dataset.noise, config.optimizer.lr, config.strategy.delay) == (4, 1.0, 1e-3, 2)
    assert (config.task_name, config.metrics) == ("smooth", ("errors", "wrong"))
    assert (config.cluster.name, config.cluster.workers, config.cluster.network.bandwidth_gbps) == ("lab", 3, 1.0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["model=net", "model.width=wide"], "model.width must be a whole number, got wide"),
        (["model=net", "model.widht=2"], "model.widht: unknown key; model takes width; did you mean model.width=2?"),
        (["strategy=bounded", "strategy.delay=-1"], "strategy.delay must be >= 0, got -1"),
        (["model=net", "model._source_=a"], "model._source_ cannot be set: it belongs to the file of the chosen model"),
        (["model=net", "dataset=waves", "task=qa"], "task=qa: dataset must be one of qa_synthetic, squad, got waves"),
        (["task=smooth", "target.metric=loss"], "target.metric must be one of errors, wrong, got loss"),
    ],
)
def test_a_wrong_value_of_an_own_part_is_one_line(my: Path, words: list[str], line: str) -> None:
    assert line_of(*words) == line


def test_a_preset_of_ours_under_a_name_of_ones_own(my: Path) -> None:
    write(
        my,
        {"model/small.yaml": "name: resnet\ndepth: 8\n", "model/smaller.yaml": "defaults: [small, _self_]\nwidth: 4\n"},
    )
    assert dataclasses.asdict(compose(["model=small"])[0].model) == {"name": "resnet", "depth": 8, "width": 16}
    assert dataclasses.asdict(compose(["model=smaller"])[0].model) == {"name": "resnet", "depth": 8, "width": 4}
    assert compose(["model=small"])[0].identity == compose(["model=resnet8"])[0].identity


def test_a_distribution_replaces_that_of_the_defaults(my: Path) -> None:
    write(
        my,
        {
            "cluster/bursty.yaml": "defaults: [laptop, _self_]\njitter: {name: gamma, shape: 4, scale: 0.25}\n"
            "network: {jitter: {name: constant, value: 0.001}}\n",
            "cluster/calm.yaml": "defaults: [bursty, _self_]\nnetwork: {jitter: {name: exponential, mean: 0.002}}\n",
            "scenario/short.yaml": "defaults: [long_tail, _self_]\ncompute_delay: {name: exponential, mean: 0.01}\n",
        },
    )
    words = ["scenario=short", "strategy=asp"]
    bursty, calm = (compose([f"cluster={name}", *words])[0] for name in ("bursty", "calm"))
    assert bursty.cluster.jitter == calm.cluster.jitter == Gamma(shape=4.0, scale=0.25)
    assert (bursty.cluster.network.jitter, calm.cluster.network.jitter) == (Constant(0.001), Exponential(mean=0.002))
    assert calm.cluster.workers == compose(["cluster=laptop"])[0].cluster.workers
    assert calm.scenario.compute_delay == Exponential(mean=0.01)


SEES = """
import torch
from syncline.learning.update import UpdateRule


class Sees(UpdateRule):
    needs_weights = True

    def __call__(self, weights, pushes, rate):
        assert [push.worker for push in pushes] == [0, 1, 2]
        assert {(push.staleness, push.steps, push.samples) for push in pushes} == {(0, 2, 16)}
        for push in pushes:
            assert torch.equal(push.weights, weights)
            push.gradient.zero_()
"""


def test_an_update_rule_of_ones_own_sees_all_pushes_and_decides_what_becomes_of_them(my: Path) -> None:
    write(my, {"sees.py": SEES, "update/sees.yaml": "_target_: sees.Sees\n"})
    words = ["strategy=bsp", "cluster.workers=3", "cluster.jitter=null", "batch_size=8", "local.steps=2"]
    config, _ = compose([*words, "update=sees", "optimizer.momentum=0", "max_updates=3", "model=softmax_regression"])
    run_one(config, my.parent, lambda progress: None)
    before, *_, after = [row["loss"] for row in read_metrics(my.parent / config.identity)]
    assert after == before


def test_an_update_rule_that_is_none_is_one_line(my: Path) -> None:
    write(my, {"update/mine.yaml": "_target_: builtins.dict\n"})
    with pytest.raises(
        ConfigError, match=r"^update=mine: .* must return a syncline.learning.update.UpdateRule, got dict"
    ):
        build_update(compose(["update=mine"])[0])


# Faults of a file.


@pytest.mark.parametrize(
    ("files", "words", "line"),
    [
        ({"model/lenet.yaml": "name: lenet\n"}, ["model=lenet"], "model=lenet is a choice of Syncline's"),
        ({"model/a.yaml": "width: 3\n"}, ["model=a"], "must have a _target_, or a name, one of alexnet_small, bert"),
        ({"model/a.yaml": "_target_: [x\n"}, ["model=a"], "model/a.yaml: while parsing a flow sequence"),
        ({"cluster/a.yaml": "wrokers: 3\n"}, ["cluster=a"], "cluster.wrokers: unknown key"),
        ({"cluster/a.yaml": "workers: many\n"}, ["cluster=a"], "cluster.workers must be a whole number, got many"),
        ({"runner/a.yaml": "_target_: mine.Net\n"}, ["runner=a"], "runner=a: _target_ goes with model, dataset, task"),
        (
            {"optimizer/a.yaml": "_target_: torch.optim.NAdam\nlr: 0.1\n"},
            ["optimizer=a", "local=streaming_diloco"],
            "local.fragments must be 1 with an optimizer of your own",
        ),
        ({"model/a.yaml": "_target_: gone.Net\n"}, ["model=a"], "model=a: _target_=gone.Net: there is no module gone"),
        ({"model/a.yaml": "_target_: bad.X\n", "bad.py": "x = 1 / 0\n"}, ["model=a"], "bad.py:1: ZeroDivisionError"),
        ({"model/a.yaml": "_target_: bad.X\n", "bad.py": "def (\n"}, ["model=a"], "bad.py:1: SyntaxError"),
        ({"model/a.yaml": "_target_: bad.X\n", "bad.py": "X = 3\n"}, ["model=a"], "must name a class or a function"),
        ({"strategy/a.yaml": "_target_: mine.Net\n"}, ["strategy=a"], "must be a dataclass(frozen=True) derived from"),
        ({"strategy/a.yaml": "_target_: bounded.BoundedOptions\ndealy: 3\n"}, ["strategy=a"], "takes delay"),
        ({"task/a.yaml": "_target_: tasks.Smooth\nsmoothing: 0.1\n"}, ["task=a"], "task.metrics must map each"),
        ({"json.py": "class X: pass\n", "model/a.yaml": "_target_: json.X\n"}, ["model=a"], "json has no X"),
        ({"wave.py": "def X(): pass\n", "model/a.yaml": "_target_: wave.open\n"}, ["model=a"], "needs another name"),
    ],
    ids=lambda value: "",
)
def test_a_faulty_file_is_one_line(my: Path, files: dict[str, str], words: list[str], line: str) -> None:
    write(my, files)
    assert line in line_of(*words)


def test_a_folder_that_is_not_there_is_one_line(my: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"must name folders, got {tmp_path}/nowhere"):
        use(f"{tmp_path}/nowhere")


def test_a_choice_of_two_folders_is_one_line(my: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"model/net.yaml": "name: lenet\n"})
    with using(my, other):
        assert line_of("model=net") == f"model=net is given twice: {my}/model/net.yaml and {other}/model/net.yaml"


# Faults that show when parts are used.


def error_of(config: RunConfig, my: Path, results: Path, *words: str) -> str:
    """The one line that this run ends with; one of real processes is made by the command."""
    if config.runner.name == "local":
        said = cli("--config-dir", str(my), *words, f"results={results}")
        assert said.code == 1, said
        (line,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
        return line
    return refusal((ConfigError, Deadlock, ValueError), run_one, config, results, lambda progress: None)


@pytest.mark.parametrize(
    "words",
    [["runner=simulate"], pytest.param(["runner=local", "runner.start_timeout_s=20"], marks=pytest.mark.processes)],
    ids=" ".join,
)
def test_a_file_that_a_data_set_lacks_is_one_line_and_the_run_has_failed(
    my: Path, words: list[str], tmp_path: Path
) -> None:
    code = (
        "from waves import Waves\n\n\nclass Gone(Waves):\n    n = 0\n\n    def __getitem__(self, index):\n"
        "        self.n += 1\n        return super().__getitem__(index) if self.n < 20 else open('absent.png')\n"
    )
    write(my, {"gone.py": code, "dataset/gone.yaml": "_target_: gone.Gone\nnoise: 0.1\n"})
    config, _ = compose(["model=net", "dataset=gone", *words, *SHORT])
    line = error_of(config, my, tmp_path / "results", "model=net", "dataset=gone", *words, *SHORT)
    assert re.search(r"gone\.py:9: FileNotFoundError: .*absent\.png'$", line)
    assert status(tmp_path / "results" / config.identity) == FAILED


STRATEGIES = {
    "never": (
        "[Hold(c.worker) if isinstance(c, Grant) else c for c in super().handle(event)]",
        "no worker can continue at",
    ),
    "twice": ("[c for c in super().handle(event) for _ in range(1 + isinstance(c, Apply))]", "broke its contract"),
    "raises": ("{}['x']", "faulty.py:12: KeyError: 'x'"),
}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        *((fault, ["gradients=false"]) for fault in STRATEGIES),
        pytest.param("twice", ["runner=local", "dataset=digits", "model=mlp"], marks=pytest.mark.processes),
    ],
    ids=str,
)
def test_a_strategy_that_breaks_its_contract_is_one_line(
    my: Path, tmp_path: Path, fault: str, words: list[str]
) -> None:
    answer, line = STRATEGIES[fault]
    code = (
        "from bounded import *\n\n\nclass FaultyOptions(BoundedOptions):\n    def start(self, num_workers):\n"
        "        return Faulty(num_workers, self.delay)\n\n\nclass Faulty(Bounded):\n    def handle(self, event):\n"
        f"        # broken\n        return {answer}\n"
    )
    write(my, {"faulty.py": code, "strategy/faulty.yaml": "_target_: faulty.FaultyOptions\n"})
    config, _ = compose(["strategy=faulty", "max_updates=30", *words])
    assert line in error_of(config, my, tmp_path / "results", "strategy=faulty", "max_updates=30", *words)


def test_a_fault_is_one_line_of_the_command(my: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(commands, "handle_signals", lambda: None)  # those of this process stay
    write(my, {"bad.py": "x = 1 / 0\n", "model/bad.yaml": "_target_: bad.Bad\n"})
    with using():
        code = commands.main(["run", "--config-dir", str(my), "model=bad", f"results={tmp_path}/results"])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("bad.py:1: ZeroDivisionError: division by zero")
    assert not (tmp_path / "results").exists()


# Identity and records.


def test_a_changed_line_makes_another_run_and_a_changed_comment_does_not(my: Path) -> None:
    def identity(**changed: str) -> str:
        write(my, SHOWN | {f"{name}.py": text for name, text in changed.items()})
        with using(my):
            return compose(OWN)[0].identity

    before, names = identity(), ("mine", "waves", "tasks", "bounded")
    assert identity(**{name: f"# A comment.\n\n{SHOWN[f'{name}.py']}" for name in names}) == before
    for name in names:
        assert identity(**{name: f"{SHOWN[f'{name}.py']}\nMORE = 1\n"}) != before, name
    assert identity(unused="MORE = 1\n") == before, "no part of the run is in it"


def test_the_identity_does_not_depend_on_where_the_folder_is(my: Path, tmp_path: Path) -> None:
    before = compose(OWN)[0].identity
    with using(write(tmp_path / "elsewhere", SHOWN)):
        assert compose(OWN)[0].identity == before


def test_every_argument_counts_and_of_files_their_bytes(my: Path, tmp_path: Path) -> None:
    """Also under names that say where data are among ours."""
    code = "from waves import Waves\n\n\ndef at(train, path, root):\n    return Waves(train, 0.1)\n"
    write(my, {"stored.py": code, "dataset/stored.yaml": "_target_: stored.at\npath: a\nroot: b\nfiles: []\n"})
    words = ["model=net", "dataset=stored"]
    changed = [[], ["dataset.path=c"], ["dataset.root=c"]]
    assert len({compose([*words, *more])[0].identity for more in changed}) == 3
    same = [write(tmp_path / name, {"data.bin": "bytes"}) / "data.bin" for name in ("one", "two")]
    other = write(tmp_path / "three", {"data.bin": "other"}) / "data.bin"
    one, two, three = (compose([*words, f"dataset.files=[{path}]"])[0].identity for path in (*same, other))
    assert one == two != three


def test_a_record_of_own_parts_is_read_again(my: Path, tmp_path: Path) -> None:
    config, _ = compose([*OWN, *SHORT, "target.value=0.0"])
    run_one(config, tmp_path, lambda progress: None)
    record = tmp_path / config.identity
    found = from_plain(yaml.safe_load(json.dumps(read_run_config(record))))
    assert (found, found.identity) == (config, record.name)
    assert pickle.loads(pickle.dumps(config)) == config, "as it is sent to the processes of a plan"
    summary = read_summary(record)
    assert (summary["metric"], summary["lower_is_better"], set(summary["final"])) == (
        "errors",
        True,
        {"errors", "wrong"},
    )
    assert summary["best"]["errors"]["value"] <= summary["final"]["errors"], "the lowest is best"
    assert read_outcome(record).lower_is_better


def test_a_run_of_another_source_is_refused(my: Path, tmp_path: Path) -> None:
    config, _ = compose([*OWN, *SHORT])
    write(my, {"mine.py": f"{SHOWN['mine.py']}\nMORE = 1\n"})
    with using(my), pytest.raises(ValueError, match=r"the source of mine\.Net must be that of the run"):
        run_one(from_plain(config.as_dict()), tmp_path, lambda progress: None)


@pytest.mark.slow
def test_a_sweep_of_own_parts_is_made_ranked_and_found_again_by_its_command(my: Path, tmp_path: Path, capsys) -> None:
    words = ["-m", *OWN[:4], *SHORT, "strategy=bounded,bsp", f"results={tmp_path}/results"]
    assert call(["run", *words]) == 0
    assert "ranked by final errors, lowest first" in capsys.readouterr().out
    (plan,) = (tmp_path / "results/plans").glob("*.json")
    command = json.loads(plan.read_text())["command"]
    assert command == ["run", *words, f"--config-dir={my}"], "`retry` and who copies it have no other folder"
    with using():
        assert call(command) == 0
    assert "2 runs, 2 finished before" in capsys.readouterr().err


def test_a_choice_lies_in_the_folder_of_its_group_itself(my: Path) -> None:
    """Hydra would put one in a folder of that folder under another key."""
    write(my, {"model/deep/net.yaml": SHOWN["model/net.yaml"]})
    assert "deep/net" not in choices("model")
    assert line_of("model=deep/net").startswith("model must be one of ")


@pytest.mark.parametrize(
    ("file", "lacks"),
    [
        ("# @package experiment\nbase: []\nruns: {a: []}\n", "scales"),
        ("base: []\nscales: {smoke: []}\nruns: {a: []}\n", "base"),
    ],
)
def test_an_experiment_without_its_keys_is_one_line(my: Path, file: str, lacks: str) -> None:
    write(my, {"experiment/me/mine.yaml": file})
    with pytest.raises(ConfigError, match=f"must begin with `# @package experiment` .*; it has no {lacks}$"):
        call(["run", "+experiment=me/mine", "scale=smoke"])


def test_of_an_experiment_of_ones_own_no_claim_is_known_and_no_report_is_made(my: Path, tmp_path: Path) -> None:
    file = "# @package experiment\nbase: [gradients=false, max_updates=5]\nscales: {smoke: []}\nruns: {a: []}\n"
    write(my, {"experiment/me/mine.yaml": file})
    words = ["scale=smoke", f"results={tmp_path}/results"]
    with pytest.raises(ValueError, match=r"^no claims are known of me/mine; those of "):
        call(["judge", "me/mine", *words])
    studies, *_ = declared_judging(["all", "scale=smoke"])
    names = {study.name for study in studies}
    assert "me/mine" not in names
    assert "overview/language" in names
    assert call(["run", "+experiment=me/mine", *words, "launcher=slurm", "launcher.submit=false"]) == 0
    assert {path.name for path in tmp_path.rglob("*.sbatch")} == {"array.sbatch"}


def test_a_batch_script_names_the_folder(my: Path, tmp_path: Path) -> None:
    """A site may export nothing of the environment."""
    words = [*OWN, *SHORT, "runner=slurm", "runner.submit=false", "runner.setup=[module load torch]"]
    assert call(["run", *words, f"results={tmp_path}/results"]) == 0
    (script,) = (tmp_path / "results/plans").glob("*.slurm/1/array.sbatch")
    lines = script.read_text().splitlines()
    assert lines.index(f"export SYNCLINE_CONFIG_DIR={my}") < lines.index("module load torch")


def test_a_host_without_the_code_says_so_in_one_line(my: Path, tmp_path: Path) -> None:
    plain = compose([*OWN[:2], *SHORT])[0].as_dict()
    plain["model"]["_folder_"] = plain["dataset"]["_folder_"] = str(tmp_path / "elsewhere")
    with using(), pytest.raises(TargetError) as error:
        build_problem(from_plain(plain), torch.device("cpu"))
    assert str(error.value) == (
        "dataset=waves: _target_=waves.Waves: there is no module waves here; it must lie in a folder of --config-dir"
    )
