"""syncline new: what it writes is valid, passes its own tests and has the given name; what it cannot do is one line."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from own import using

from runners.commands import KINDS, call, main
from runners.new import renamed, write
from syncline.checking import strategy

NAME = "ab_cd2"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.processes
def test_what_it_writes_keeps_all_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(strategy, "NUM_RANDOM", 5)
    for kind in KINDS:
        write(kind, f"x{kind}", tmp_path)
    for path in tmp_path.rglob("*.*"):
        assert "mine" not in f"{path.name} {path.read_text()}".lower(), "a name in the starts"
    with using(tmp_path):
        words = [f"{kind}=x{kind}" for kind in KINDS]
        assert call(["check", *words, "dataset.num_samples=100"]) == 0, capsys.readouterr().out
        keys = yaml.safe_load((tmp_path / "strategy" / "xstrategy.yaml").read_text())
        options = getattr(importlib.import_module("xstrategy"), keys.pop("_target_").rpartition(".")[2])
        assert options() == options(**keys), "two defaults of one key"


@pytest.mark.processes
def test_its_tests_pass(tmp_path: Path) -> None:
    for kind in KINDS:
        write(kind, f"my_{kind}", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout
    assert " passed" in said.stdout


def test_only_whole_words_are_renamed() -> None:
    assert renamed("mine.Mine MineOptions test_mine determine mined Miner", "a_bc") == (
        "a_bc.ABc ABcOptions test_a_bc determine mined Miner"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["model", "lenet"], "NAME must be a new one: model=lenet ships with syncline"),
        (["model", "torch"], "NAME must not be that of a module that is installed, got torch"),
        (["model", "3d"], "NAME must be a name of a Python module, such as my_model, got 3d"),
        (["dataset", "../x"], "NAME must be a name of a Python module, such as my_dataset, got ../x"),
        (["model"], "syncline new: the following arguments are required: name"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_in_one_line(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *words]) == 1
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
