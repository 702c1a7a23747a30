"""show: what a record holds, in a few words or all of it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operations.planned import TRACE, finish, identity_of

from syncline.operations.tables import cell

Said, AsJson = Callable[..., str], Callable[..., Any]


def test_a_finished_run_is_shown_with_its_plan_words_summary_and_last_evaluations(said: Said) -> None:
    text = said("show", identity_of(0))
    assert text.splitlines()[:2] == [f"{identity_of(0)}: finished", "plan paper-table-smoke, row even"]
    assert "overrides\n   seed=0" in text
    assert re.search("^  wall_s +10$", text, re.MULTILINE)
    assert re.search("^  final.accuracy +0.5$", text, re.MULTILINE)
    assert text.endswith("last evaluations\ntime_s  accuracy\n   0.5      0.25\n     1       0.5\n")
    assert "epochs" not in text.partition("summary")[0], "the whole config is for --config"
    assert "config\n  seed    0\n  epochs  1" in said("show", identity_of(0), "--config")
    assert said("show", identity_of(0), "--last", "1").endswith("accuracy\n     1       0.5\n")


def test_why_a_run_failed_is_shown_and_who_makes_one(said: Said) -> None:
    assert said("show", identity_of(3)).endswith(f"\nfailure\n{TRACE}")
    assert said("show", identity_of(3)).splitlines()[0].endswith("DataMissingError: cifar10 not found: no data")
    assert said("show", identity_of(2)).startswith(f"{identity_of(2)}: running process 7 on far-away")


def test_a_record_of_no_plan_has_the_command_that_made_it(
    results: Path, as_json: AsJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "strategy=asp", "seed=11"])
    finish(results, 11)
    content = as_json("show", identity_of(11))
    assert (content["plans"], content["overrides"]) == ([], ["strategy=asp", "seed=11"])


def test_the_keys_of_show(as_json: AsJson) -> None:
    content = as_json("show", identity_of(0))
    keys = "identity folder state plans overrides config environment summary curve failure"
    assert list(content) == keys.split()
    (place,) = content["plans"]
    assert {key: place[key] for key in ("plan", "label", "seed", "command")} == {
        "plan": "paper-table-smoke", "label": "even", "seed": 0, "command": [],
    }  # fmt: skip
    assert (content["state"]["state"], content["summary"]["wall_s"], content["failure"]) == ("finished", 10.0, "")
    assert as_json("show", identity_of(3))["failure"] == TRACE


def test_a_long_list_is_shown_by_its_ends_and_distinct_from_another_one() -> None:
    values = [number / 3 for number in range(20_000)]
    shown = cell(values)
    assert shown.startswith("[0, 0.333333, ..., 6666.33] (20000 values, CRC ")
    assert cell([*values[:50], 0.0, *values[51:]]) != shown
    assert cell([1, 2.5]) == "[1, 2.5]"
