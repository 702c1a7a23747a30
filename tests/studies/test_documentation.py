"""docs/studies.md: its commands are accepted, and its keys and files are those that there are."""

import dataclasses
import re
from pathlib import Path

import pytest

from runners.tuning import declared_tuning
from syncline.config import TuneConfig
from syncline.records.studies import WrittenStudy

TEXT = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
COMMANDS = re.findall(r"^python run\.py (.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_declares_a_study(command: str) -> None:
    declared, _ = declared_tuning([word for word in command.split() if word != "--status"])
    assert declared.study.rows
    if declared.scale:
        assert f"show {declared.stem}" in TEXT


def test_every_key_is_in_the_table_with_its_default() -> None:
    rows = re.findall(r"^\| (`tune.*?) \| .* \| (.*) \|$", TEXT, re.MULTILINE)
    keys = [key.removeprefix("tune.") for names, _ in rows for key in re.findall(r"`([\w.]+)`", names)]
    fields = {field.name: field for field in dataclasses.fields(TuneConfig)}
    assert keys == [name for name in fields if name != "name"]


def test_the_files_keys_are_those_that_are_documented() -> None:
    told = TEXT.partition("is written after each stage: ")[2].partition("`show` prints")[0]
    assert {field.name for field in dataclasses.fields(WrittenStudy)} <= set(re.findall(r"`(\w+)`", told))
