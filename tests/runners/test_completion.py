"""syncline completion: its words are those that the command line takes, and bash completes with them."""

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from reports.papers import COLLECTIONS
from runners.commands import COMMANDS, main
from runners.completion import next_words
from syncline.config import GROUPS, Invocation, RunConfig, choices

BIN = Path(sys.executable).parent
COMPLETE = """
source <(syncline completion bash)
compopt() { echo nospace; }
COMP_WORDBREAKS=$' \\t\\n"=:' COMP_LINE=$1 COMP_POINT=${#1}
_syncline syncline
echo "${COMPREPLY[*]}"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("syncline sta", ["status"]),
        ("syncline run strategy=d", ["strategy=ds_sync", "strategy=dssp"]),
        ("syncline run strategy=dssp strategy.", ["strategy.bound=", "strategy.r_max=", "strategy.s_lower="]),
        ("syncline run cluster.network.ba", ["cluster.network.bandwidth_gbps="]),
        ("syncline run +experiment=dssp/t", ["+experiment=dssp/table1"]),
        ("syncline run --c", ["--cfg", "--config-dir"]),
        ("syncline report dssp/t", ["dssp/table1"]),
        ("syncline judge dssp/t", ["dssp/table1"]),
        ("syncline tune tune.s", ["tune.screen=", "tune.seeds="]),
        ("syncline race race.tune.s", ["race.tune.screen=", "race.tune.seeds="]),
        ("syncline race tune", []),
        ("syncline compare --r", ["--reference", "--results"]),
        ("syncline completion z", ["zsh"]),
        ("syncline frobnicate ", []),
        ("syncline", []),
    ],
)
def test_the_words_that_may_come_next(line: str, words: list[str]) -> None:
    assert next_words(line) == words


def test_every_command_choice_and_key_is_offered_and_nothing_else() -> None:
    assert set(next_words("syncline ")) == {*COMMANDS, "--help", "--version"}
    words = set(next_words("syncline run "))
    for group, table in GROUPS.items():
        offered = {word.partition("=")[2] for word in words if word.lstrip("+").startswith(f"{group}=")}
        assert offered == set(choices(group)), group
        keys = {field.name for kind in table.values() for field in fields(kind)} - {"name"}
        assert {key_of(word, 1) for word in words if word.startswith(f"{group}.")} == keys, group
    top = {field.name for kind in (RunConfig, Invocation) for field in fields(kind)} - {*GROUPS, "experiment"}
    assert {key_of(word, 0) for word in words if word.endswith("=")} - {*GROUPS} == top


def key_of(word: str, part: int) -> str:
    return word.rstrip("=").split(".")[part]


def test_all_collections_of_reports_are_offered_and_named_in_the_help() -> None:
    (what,) = (option for option in COMMANDS["report"].options if option.names == ("what",))
    for name in COLLECTIONS:
        assert name in next_words(f"syncline report {name}")
        assert name in what.settings["help"].split(", ")


def test_plans_and_records_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert next_words("syncline status s") == []
    for name in ("plans/sweep-1.json", "asp-lenet/config.json"):
        (tmp_path / "results" / name).parent.mkdir(parents=True)
        (tmp_path / "results" / name).touch()
    assert next_words("syncline status s") == ["sweep-1"]
    assert next_words("syncline show a") == ["asp-lenet"]


def test_a_folder_of_ones_own_is_offered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("_target_: mine.Net\nwidth: 3\n")
    monkeypatch.setenv("SYNCLINE_CONFIG_DIR", str(tmp_path))
    assert next_words("syncline run model=mi") == ["model=mine"]
    assert next_words("syncline run model=mine model.w") == ["model.width="]
    monkeypatch.setenv("SYNCLINE_CONFIG_DIR", "")
    assert main(["completion", "words", f"syncline run --config-dir {tmp_path} model=mi"]) == 0
    assert capsys.readouterr().out == "model=mine\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("syncline run strategy=ds", ["ds_sync", "dssp"]),
        ("syncline run cluster.work", ["cluster.workers="]),
        ("syncline can", ["cancel"]),
    ],
)
def test_bash_puts_them_in_place_of_what_it_calls_a_word(line: str, replies: list[str]) -> None:
    said = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", line],
        env={"PATH": f"{BIN}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stderr == ""
    assert [word for word in said.stdout.split() if word != "nospace"] == replies
    assert ("nospace" in said.stdout) == (replies == ["cluster.workers="])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_of_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "completion words" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
