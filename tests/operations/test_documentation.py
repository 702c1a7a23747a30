"""docs/operations.md: every command in it runs, and the keys it names are those of the JSON."""

import json
import os
import re
from pathlib import Path

import pytest
from commands import ROOT
from operations.planned import finish, identity_of, write_plan

from runners.commands import COMMANDS as CALLED
from runners.commands import main
from syncline.operations.reference import add
from syncline.records.plans import read_plan
from syncline.records.studies import WrittenStudy, study_path, write_study

TEXT = (ROOT / "docs/operations.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
KEYS = dict(re.findall(r"^\| `(\w+)` \| (.*(?:`\w+`).*) \|$", TEXT.partition("## JSON")[2], re.MULTILINE))


@pytest.fixture
def there(tmp_path: Path) -> Path:
    write_plan(tmp_path, "dssp-table1-smoke", [0, 1], command=["run", "+experiment=dssp/table1", "scale=smoke"])
    for seed in (0, 1):
        finish(tmp_path, seed)
    stem, options = "tune-dssp-table1-smoke", {"key": "optimizer.lr"}
    study = WrittenStudy("tune", "dssp/table1", "smoke", stem, ["tune", "dssp/table1"], options, [], None, None)
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
    assert words[0] == "syncline"
    code = main([*words[1:], "--results", str(there)])
    if "retry" in words:
        assert started[0][-5:-2] == ["run", "+experiment=dssp/table1", "scale=smoke"]
    else:
        assert code == 0
        assert capsys.readouterr().out


def test_every_operation_is_there_and_what_needs_other_records_is_tested_elsewhere() -> None:
    operations = {name for name, command in CALLED.items() if command.module.startswith("syncline.operations.")}
    assert {command.split()[1] for command in COMMANDS} == operations


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
