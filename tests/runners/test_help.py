"""What is shown without starting a run, and quickly."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import Command, started

import run
import syncline
from syncline.config import CONF, GROUPS, choices, compose


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_group_with_its_choices_in_80_columns(command: Command, flag: str) -> None:
    said = command(flag)
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= 80
    for group in (*GROUPS, "experiment"):
        found = re.search(rf"^  {group} +(\S.*(?:\n {{13}}.*)*)$", said.out, flags=re.MULTILINE)
        assert found is not None, group
        assert found.group(1).split() == ", ".join(choices(group)).split()
    for word in ("-m", "--status", "--cfg", "--plan", "--runs", "--version", *run.KEYS):
        assert word in said.out


def test_the_keys_of_the_help_can_be_set() -> None:
    for word in run.KEYS:
        compose([word])


def test_the_version_is_shown(command: Command) -> None:
    said = command("--version")
    assert (said.code, said.out, said.err) == (0, f"syncline {syncline.__version__}\n", "")


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
def test_a_closed_pipe_is_no_error() -> None:
    """As of `python run.py --cfg | head -1`."""
    process = started("--cfg")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as said:
        assert said.read() == ""
    assert process.wait(60) == 141
