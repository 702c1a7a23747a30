"""docs/studies.md and docs/races.md: their commands are accepted, and their keys and files are those that there are."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from runners.judging import declared_judging
from runners.racing import declared_races
from runners.tuning import declared_tuning
from syncline.config import JudgeConfig, RaceConfig, TuneConfig
from syncline.records.studies import WrittenStudy
from syncline.studies.judge import Judging
from syncline.studies.race import Race
from syncline.studies.tune import Tuning

DOCS = Path(__file__).parents[2] / "docs"
TEXT, RACES = (DOCS / "studies.md").read_text(), (DOCS / "races.md").read_text()


def commands(text: str) -> list[str]:
    """Those of studies."""
    return re.findall(r"^syncline ((?:tune|judge|race) .*)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[pytest.mark.slow] if each.startswith("judge all") else []) for each in commands(TEXT)],
)
def test_a_command_declares_a_study(command: str) -> None:
    kind, *words = shlex.split(command)
    if kind == "judge":
        declared = declared_judging(words)[0][0]
        assert isinstance(declared.study, Judging)
    else:
        declared, _ = declared_tuning(words)
        assert isinstance(declared.study, Tuning)
        assert declared.plan.own_stem or f"show {declared.stem}" in TEXT  # a sweep's stem is a digest
    assert declared.study.rows


@pytest.mark.parametrize("command", commands(RACES))
def test_a_command_declares_a_race(command: str) -> None:
    (declared,) = declared_races(shlex.split(command)[1:])[0]
    assert isinstance(declared.study, Race)
    assert len(declared.study.entrants) >= 3


@pytest.mark.parametrize(
    ("group", "config", "text"), [("tune", TuneConfig, TEXT), ("judge", JudgeConfig, TEXT), ("race", RaceConfig, RACES)]
)
def test_every_key_is_in_the_table_with_its_default(group: str, config: type, text: str) -> None:
    rows = re.findall(rf"^\| (`{group}.*?) \| .* \| (.*) \|$", text, re.MULTILINE)
    keys = [key.removeprefix(f"{group}.") for names, _ in rows for key in re.findall(r"`([\w.]+)`", names)]
    assert sorted(keys) == sorted(field.name for field in dataclasses.fields(config))


def test_the_files_keys_are_those_that_are_documented() -> None:
    told = TEXT.partition("is written after each stage: ")[2].partition("`show` prints")[0]
    assert {field.name for field in dataclasses.fields(WrittenStudy)} <= set(re.findall(r"`(\w+)`", told))
