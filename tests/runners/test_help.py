"""What is shown without starting a run, and quickly."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import Command, started

import run
from syncline.config import CONF, GROUPS, choices


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_group_with_its_choices(command: Command, flag: str) -> None:
    said = command(flag)
    assert (said.code, said.err) == (0, "")
    for group in (*GROUPS, "experiment"):
        (line,) = [line for line in said.out.splitlines() if line.split()[:1] == [group]]
        assert line.split()[1:] == ", ".join(choices(group)).split()
    for word in run.FLAGS:
        if word.startswith("--") and word not in ("--multirun", "--help"):
            assert word in said.out


def test_cfg_prints_the_composed_config_and_starts_nothing(tmp_path: Path, command: Command) -> None:
    said = command("--cfg", "strategy=ssp", "seed=7", f"results={tmp_path / 'results'}")
    assert (said.code, said.err) == (0, "")
    printed = yaml.safe_load(said.out)
    assert (printed["strategy"], printed["seed"]) == ({"name": "ssp", "staleness": 3}, 7)
    assert not (tmp_path / "results").exists()


@pytest.mark.processes
def test_the_command_line_is_quick_until_something_is_run() -> None:
    """torch (2 s) and hydra are imported where they are first needed."""
    code = "import sys, run; print([name for name in ('torch', 'hydra', 'sklearn') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.processes
def test_who_reads_only_the_beginning_is_not_told_of_an_error() -> None:
    """As of `python run.py --cfg | head -1`."""
    process = started("--cfg")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as said:
        assert said.read() == ""
    assert process.wait(60) == 141
