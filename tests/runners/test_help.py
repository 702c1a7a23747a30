"""What is shown without starting a run, and quickly."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import Command, one_error_line

from runners import command_line
from runners.commands import COMMANDS, main
from syncline.config import CONF, GROUPS, choices, compose


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_group_with_its_choices_in_80_columns(
    command: Command, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = command(flag)
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= 80
    for group in (*GROUPS, "experiment"):
        found = re.search(rf"^  {group} +(\S.*(?:\n {{13}}.*)*)$", said.out, flags=re.MULTILINE)
        assert found is not None, group
        assert found.group(1).split() == ", ".join(choices(group)).split()
    for word in ("-m", "--cfg", "--plan", "--runs", *command_line.KEYS):
        assert word in said.out


def test_syncline_names_its_commands_and_refuses_others_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert re.findall(r"^  ([a-z]+) ", capsys.readouterr().out, re.MULTILINE) == list(COMMANDS)
    assert main(["stauts"]) == 1
    line = f"error: unknown command 'stauts'; there are {', '.join(COMMANDS)}; did you mean status?\n"
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_in_80_columns_and_refuses_an_option_of_another_one(
    name: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = command(name, "--help")
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.partition("\nKeys, ")[0].splitlines())) <= 80
    assert said.out.startswith(f"usage: syncline {name}")
    assert COMMANDS[name].about[1:] in " ".join(said.out.split())
    for option in COMMANDS[name].parser(name).options:
        assert option in said.out
    line = one_error_line(command(name, "--other"))
    assert f"syncline {name}" in line


@pytest.mark.parametrize("name", ["race", "tune", "judge"])
def test_the_help_of_a_study_has_its_keys(name: str, command: Command) -> None:
    group, _, preset = COMMANDS[name].preset.partition("/")
    assert (CONF / group / f"{preset}.yaml").read_text() in command(name, "--help").out


def test_the_keys_of_the_help_can_be_set() -> None:
    for word in command_line.KEYS:
        compose([word])


def test_cfg_prints_the_composed_config_and_starts_nothing(tmp_path: Path, command: Command) -> None:
    said = command("--cfg", "strategy=ssp", "seed=7", f"results={tmp_path / 'results'}")
    assert (said.code, said.err) == (0, "")
    printed = yaml.safe_load(said.out)
    assert (printed["strategy"], printed["seed"]) == ({"name": "ssp", "staleness": 3}, 7)
    assert not (tmp_path / "results").exists()


@pytest.mark.processes
def test_the_command_line_is_quick_until_something_is_run() -> None:
    """torch (2 s) and others are imported where they are first needed."""
    late = ("torch", "hydra", "omegaconf", "matplotlib", "pandas", "sklearn", "scipy.stats")
    told = f"print([name for name in {late} if name in sys.modules])"
    code = f"""
import sys, runners.commands as command
for words in (["--help"], ["--version"], ["status"], ["completion", "bash"]):
    assert command.main(words) == 0
    {told}
assert command.main(["run", "--cfg", "--plan"]) == 1
import run, runners.command_line
{told}
"""
    shown = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=True)
    assert [line for line in shown.stdout.splitlines() if line.startswith("[")] == ["[]"] * 5
