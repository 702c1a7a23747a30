"""compare: two records side by side; one's own runs beside those of the reference, with verdicts that seldom err."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from operations.planned import finish, identity_of, write_plan

from syncline.operations.agreement import (
    CONSTANT,
    DIFFERS,
    EQUAL,
    LEVEL,
    UNKNOWN,
    WITHIN,
    Comparison,
    Numbers,
    judged,
    p_value,
)
from syncline.operations.reference import add
from syncline.records.plans import read_plan

Said, AsJson = Callable[..., str], Callable[..., Any]


def test_two_runs_are_compared_where_they_differ(said: Said, as_json: AsJson) -> None:
    content = as_json("compare", identity_of(0), identity_of(1))
    assert content["records"] == [identity_of(0), identity_of(1)]
    assert content["config"] == {"seed": [0, 1]}
    results = {"wall_s": [10.0, 30.0], "ended_by": ["epochs", "diverged"], "final.accuracy": [0.5, 0.5]}
    assert content["results"].items() >= results.items()
    assert not {"identity", "format"} & set(content["results"])
    rows = [line.split() for line in said("compare", identity_of(0), identity_of(1)).splitlines()]
    assert rows[:3] == [[identity_of(0), identity_of(1)], ["seed", "0", "1"], []]
    assert ["wall_s", "10", "30"] in rows


def test_two_records_of_one_run_are_told_apart_with_the_environments_that_made_them(
    results: Path, tmp_path: Path, as_json: AsJson, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"commit": "0123456789ab", "packages": {"torch": "9.9"}, "command": ["run.py"], "cores": 2}
    monkeypatch.setattr("syncline.records.writer.environment", lambda: other)
    folders = [str(folder) for folder in (results / identity_of(0), finish(tmp_path / "other", 0))]
    content = as_json("compare", *folders)
    assert (content["records"], content["config"]) == (folders, {})
    assert content["environment"]["commit"][1] == "0123456789ab"
    assert content["environment"]["packages.torch"][1] == "9.9"
    assert "command" not in content["environment"]
    text = said("compare", *folders)
    assert text.splitlines()[0].split() == folders
    assert re.search("^packages.torch +.* +9.9$", text, re.MULTILINE)


def test_of_a_run_that_is_not_finished_only_the_config_is_compared(said: Said) -> None:
    text = said("compare", identity_of(0), identity_of(3))
    assert ["epochs", "1", "-"] in [line.split() for line in text.splitlines()]
    assert text.endswith(f"{identity_of(3)} is not finished: no results\n")
    assert "(the configs are the same)" in said("compare", identity_of(0), identity_of(0))


def verdict(own: Numbers, reference: Numbers) -> str:
    (one,) = judged([Comparison("plan", "row", "number", own, reference, p_value(own, reference))])
    return one.verdict


def seeded(values: Any, first: int = 0) -> dict[int, float]:
    return {first + seed: float(value) for seed, value in enumerate(values)}


@pytest.mark.parametrize(
    ("own", "reference", "expected"),
    [
        (seeded([1.0, 2.0]), seeded([1.0, 2.0, 7.0]), EQUAL),
        (seeded([1.0, 2.0, 3.0]), seeded([1.1, 1.9, 3.2]), WITHIN),
        (seeded([1.0, 2.0, 3.0]), seeded([1.0 + 1e-13, 2.0 + 1e-13, 3.0 + 1e-13]), WITHIN),
        (seeded([1.0, 2.0, 3.0]), seeded([1.1, 2.1, 3.1]), WITHIN),  # a shift is held against the spread over seeds
        (seeded([1.0, 2.0, 3.0]), seeded([11.0, 12.01, 13.0]), DIFFERS),  # paired
        (seeded([1.0, 1.1, 0.9]), seeded([3.0, 3.1, 2.9], 10), DIFFERS),  # of other seeds
        (seeded([9.0]), seeded([1.0, 1.1, 0.9], 10), DIFFERS),
        (seeded([1.2]), seeded([1.0, 1.1, 0.9], 10), WITHIN),
        (seeded([5.0, 5.0]), seeded([5.0, 5.0], 10), WITHIN),
        (seeded([5.0, 5.0]), seeded([5.1, 5.1]), CONSTANT),
        (seeded([5.0]), seeded([5.1, 5.1]), CONSTANT),  # one of its seeds
        (seeded([5.0]), seeded([5.1, 5.1], 10), UNKNOWN),
        (seeded([5.0]), seeded([5.1]), UNKNOWN),
    ],
)
def test_the_verdicts_by_hand(own: Numbers, reference: Numbers, expected: str) -> None:
    assert verdict(own, reference) == expected
    assert verdict(reference, own) == expected


DRAWS: dict[str, Callable[[np.random.Generator, Any], Any]] = {
    "normal": lambda rng, size: rng.normal(1.0, 0.1, size),
    "accuracies of 1,000 images": lambda rng, size: rng.binomial(1000, 0.6, size) / 1000,
    "accuracies of 60 images": lambda rng, size: rng.binomial(60, 0.6, size) / 60,
    "three counts": lambda rng, size: rng.choice([99, 100, 101], size, p=[0.25, 0.5, 0.25]),
}
NUM_STUDIES, NUM_NUMBERS = 300, 20
# Three standard errors of a proportion of studies above the level.
MOST = LEVEL + 3.0 * math.sqrt(LEVEL * (1.0 - LEVEL) / NUM_STUDIES)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kind", "seeds", "others", "first"),
    [*((kind, 3, 3, 0) for kind in DRAWS), *((kind, 1, 5, 100) for kind in DRAWS), ("normal", 3, 8, 0)],
)
def test_the_same_distributions_are_seldom_told_apart(kind: str, seeds: int, others: int, first: int) -> None:
    """In all of a study's comparisons together."""
    rng = np.random.default_rng(7)
    num_wrong = 0
    for _ in range(NUM_STUDIES):
        own, reference = DRAWS[kind](rng, (NUM_NUMBERS, seeds)), DRAWS[kind](rng, (NUM_NUMBERS, others))
        sides = [(seeded(ours), seeded(theirs, first)) for ours, theirs in zip(own, reference, strict=True)]
        found = judged([Comparison("", "", "", *both, p_value(*both)) for both in sides])
        num_wrong += any(one.verdict == DIFFERS for one in found)
    assert num_wrong / NUM_STUDIES <= MOST


@pytest.fixture
def reference(results: Path, tmp_path: Path) -> Path:
    """Holds seeds 0 and 1 of the plan."""
    add(read_plan(results / "plans" / "paper-table-smoke.json"), tmp_path / "reference")
    return tmp_path / "reference"


def test_own_runs_are_compared_with_the_reference(said: Said, as_json: AsJson, results: Path, reference: Path) -> None:
    words = ("compare", "--reference", "--folder", str(reference))
    content = as_json(*words)
    assert content["counts"] == {EQUAL: 10}
    assert {(one["row"], one["number"]) for one in content["comparisons"]} == {
        (row, number) for row in ("even", "odd") for number in ("final", "best", "time_s", "updates", "mean_staleness")
    }
    assert said(*words).splitlines()[:2] == [f"paper-table-smoke: 10 {EQUAL}", f"10 comparisons: 10 {EQUAL}"]
    write_plan(results, "paper-table-smoke", range(4))
    for seed in range(4):
        finish(results, seed, time_s=1.0 + seed, updates=10)
    add(read_plan(results / "plans" / "paper-table-smoke.json"), reference.with_name("other"))
    for seed in range(4):
        finish(results, seed, time_s=1.01 + seed, updates=11)
    words = ("compare", "--reference", "paper/table", "--folder", str(reference.with_name("other")))
    lines = [line.split("  ") for line in said(*words, code=1).splitlines()]
    (updates,) = [line for line in lines if "updates" in line]
    assert [cell.strip() for cell in updates if cell] == ["a", "updates", "11 ± 0 (4)", "10 ± 0 (4)", CONSTANT]
    by_number = {one["number"]: one for one in as_json(*words, code=1)["comparisons"]}
    assert by_number["time_s"]["verdict"] == WITHIN
    assert by_number["updates"]["own"] == {"mean": 11.0, "std": 0.0, "n": 4}
    assert by_number["updates"]["p"] is None


def test_rows_with_other_settings_are_named(said: Said, results: Path, reference: Path) -> None:
    plan = results / "plans" / "paper-table-smoke.json"
    plan.write_text(plan.read_text().replace(identity_of(0), identity_of(9)))
    text = said("compare", "--reference", "--folder", str(reference))
    assert "other settings than the reference's in 1 row, even first" in text
