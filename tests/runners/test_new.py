"""syncline new: what it writes is valid, passes its own tests and has the given name; what it cannot do is one line."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from own import using

from runners import check
from runners.__main__ import main
from runners.new import KINDS, renamed, write
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import ClusterConfig
from syncline.timing.network import NetworkConfig

SIZES = {"in_channels", "image_size", "num_classes"}  # given to a model by the data set
NAME = "ab_cd2"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is on sys.path, as --config-dir puts it there."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize("kind", ["strategy", "model", "dataset"])
def test_the_file_names_a_callable_that_takes_its_keys(kind: str, of_ones_own: Path) -> None:
    write(kind, NAME, of_ones_own)
    assert files(of_ones_own) == {f"{kind}/{NAME}.yaml", f"{NAME}.py", f"test_{NAME}.py"}
    keys = yaml.safe_load((of_ones_own / kind / f"{NAME}.yaml").read_text())
    module, _, target = keys.pop("_target_").rpartition(".")
    assert module == NAME
    made = getattr(importlib.import_module(module), target)
    asked = set(inspect.signature(made).parameters)
    given = {"strategy": {"name"}, "model": SIZES, "dataset": {"train"}}[kind]
    assert asked == keys.keys() | given
    if kind == "strategy":
        assert issubclass(made, StrategyOptions)
        assert made() == made(**keys), "two defaults of one key"


def test_a_cluster_has_only_keys_of_clusters(tmp_path: Path) -> None:
    write("cluster", NAME, tmp_path)
    assert files(tmp_path) == {f"cluster/{NAME}.yaml"}
    keys = yaml.safe_load((tmp_path / "cluster" / f"{NAME}.yaml").read_text())
    cluster = ClusterConfig(**keys | {"network": NetworkConfig(**keys["network"])})
    assert (cluster.name, len(cluster.gradient_s)) == (NAME, cluster.workers)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_writes_keeps_all_rules(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(kind, NAME, tmp_path)
    with using(tmp_path):
        sizes = [] if kind == "dataset" else ["dataset.train_size=100", "dataset.test_size=50"]
        assert check.main([f"{kind}={NAME}", *sizes]) == 0, capsys.readouterr().out


@pytest.mark.processes
def test_its_tests_pass(tmp_path: Path) -> None:
    for kind in KINDS:
        write(kind, f"my_{kind}", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout
    assert " passed" in said.stdout


def test_no_trace_is_left_of_the_name_in_the_starts(tmp_path: Path) -> None:
    for kind in KINDS:
        write(kind, f"x{kind}", tmp_path)
    for path in tmp_path.rglob("*.*"):
        assert "mine" not in f"{path.name} {path.read_text()}".lower(), path


def test_only_whole_words_are_renamed() -> None:
    assert renamed("mine.Mine MineOptions test_mine determine mined Miner", "a_bc") == (
        "a_bc.ABc ABcOptions test_a_bc determine mined Miner"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["model", "lenet"], "NAME must be a new one: model=lenet ships with syncline"),
        (["cluster", "laptop"], "NAME must be a new one: cluster=laptop ships with syncline"),
        (["model", "torch"], "NAME must not be that of a module that is installed, got torch"),
        (["model", "3d"], "NAME must be a name of a Python module, such as my_model, got 3d"),
        (["strategy", "my-rule"], "NAME must be a name of a Python module, such as my_strategy, got my-rule"),
        (["dataset", "../x"], "NAME must be a name of a Python module, such as my_dataset, got ../x"),
        (["model", "class"], "NAME must be a name of a Python module, such as my_model, got class"),
        (["model"], "the following arguments are required: name"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_in_one_line(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(["new", *words]))
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", f"error: {line}\n")
    assert files(tmp_path) == set()


@pytest.mark.parametrize("existing", [f"{NAME}.py", f"test_{NAME}.py", f"model/{NAME}.yaml"])
def test_no_file_is_replaced_and_none_is_written_beside_one(
    existing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / existing
    path.parent.mkdir(exist_ok=True)
    path.write_text("kept")
    assert main(["new", "model", NAME, "--into", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {path} exists; nothing is written\n"
    assert (files(tmp_path), path.read_text()) == ({existing}, "kept")


def test_it_says_what_it_wrote_and_how_that_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "model", NAME, "--into", str(tmp_path)]) == 0
    written, test, use = capsys.readouterr().out.splitlines()
    assert set(written.split()[1:]) == {str(tmp_path / name) for name in files(tmp_path)}
    assert test == f"test it: pytest {tmp_path / f'test_{NAME}.py'}"
    assert use.endswith(f" --config-dir {tmp_path} model={NAME}")
