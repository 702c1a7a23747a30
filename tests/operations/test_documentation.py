"""docs/operations.md: every command in it runs, and the keys it names are those of the JSON."""

import json
import os
import re
from pathlib import Path

import pytest
from commands import ROOT
from operations.planned import finish, identity_of, write_plan

from syncline.__main__ import main
from syncline.operations.reference import add
from syncline.records.plans import read_plan
from syncline.records.studies import WrittenStudy, study_path, write_study

TEXT = (ROOT / "docs/operations.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
KEYS = dict(re.findall(r"^\| `(\w+)` \| (.*(?:`\w+`).*) \|$", TEXT.partition("## JSON")[2], re.MULTILINE))


@pytest.fixture
def there(tmp_path: Path) -> Path:
    write_plan(tmp_path, "dssp-table1-smoke", [0, 1], command=["+experiment=dssp/table1", "scale=smoke"])
    for seed in (0, 1):
        finish(tmp_path, seed)
    stem, options = "tune-dssp-table1-smoke", {"key": "optimizer.lr"}
    study = WrittenStudy("tune", "dssp/table1", "smoke", stem, ["+tune=rate"], options, [], None, None)
    write_study(study_path(tmp_path, stem), study)
    add(read_plan(tmp_path / "plans" / "dssp-table1-smoke.json"), tmp_path / "reference")
    return tmp_path


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if not {"timeline", "grow"} & set(command.split())]
)
def test_a_command_runs(
    there: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = []
    monkeypatch.chdir(there)  # where a reference is written
    monkeypatch.setattr(os, "execv", lambda program, words: started.append(words))
    for seed in (0, 1):
        command = command.replace("<identity>", identity_of(seed), 1)
    words = command.split()
    assert words[:3] == ["python", "-m", "syncline"]
    code = main([*words[3:], "--results", str(there)])
    if "retry" in words:
        assert started[0][-3:] == ["+experiment=dssp/table1", "scale=smoke", f"results={there}"]
    else:
        assert code == 0
        assert capsys.readouterr().out


def test_every_command_is_there_and_what_needs_other_records_is_tested_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    (\w+)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    assert {command.split()[3] for command in COMMANDS} == set(listed)


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--runs"],
        ["cancel", "dssp/table1"],
        ["show", "0"],
        ["compare", "0", "1"],
        ["compare", "--reference"],
        ["clean"],
        ["reference", "add", "dssp/table1"],
        ["reference", "list"],
    ],
    ids=" ".join,
)
def test_the_keys_are_those_of_the_json(
    there: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(there)
    words = [identity_of(int(word)) if word.isdigit() else word for word in words]
    assert main([*words, "--json", "--results", str(there)]) == 0
    content = json.loads(capsys.readouterr().out)
    documented = set(re.findall(r"`(\w+)`", KEYS[words[0]]))
    assert set(content) <= documented
    for plan in content.get("plans", []) if words[0] == "status" else ():
        states = {"finished", "running", "queued", "failed", "unfinished", "left"}
        assert set(plan) <= documented | states
        assert all(set(run) <= documented for run in plan["runs"])


def test_every_help_has_examples_and_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("status", "retry", "cancel", "grow", "show", "compare", "clean", "timeline", "reference"):
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert f"examples:\n  python -m syncline {name}" in text
        assert max(map(len, text.splitlines())) <= 80
