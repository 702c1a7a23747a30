"""docs/clusters.md lists every distribution with each of its parameters, and its means are right."""

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest

from syncline.config import compose
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import DISTRIBUTIONS, INLINE, distribution

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
ROWS = {
    cells[0].strip(" `"): cells[1:]
    for cells in (line.strip("| \n").split("|") for line in PAGE.splitlines())
    if len(cells) == 4 and cells[0].strip(" `") in DISTRIBUTIONS
}
EXAMPLES = {  # of those whose mean is a formula of their parameters
    "constant": {"value": 0.7},
    "exponential": {"mean": 0.7},
    "gamma": {"shape": 3.0, "scale": 0.5},
    "log_normal": {"median": 0.5, "sigma": 0.8},
    "normal": {"mean": 0.7, "std": 0.07},
    "pareto": {"minimum": 0.5, "shape": 3.0},
    "shifted_exponential": {"shift": 0.2, "scale": 0.5},
    "two_state": {"low": 0.1, "high": 0.7, "every": 30.0, "lasting": 10.0},
    "uniform": {"low": 0.2, "high": 0.7},
    "weibull": {"scale": 0.5, "shape": 0.6},
}


def test_every_distribution_has_a_row_with_each_of_its_parameters() -> None:
    parameters = {
        name: [field.name for field in fields(kind) if field.name != "name"]  # type: ignore[arg-type]
        for name, kind in DISTRIBUTIONS.items()
    }
    assert {name: re.findall("`(.+?)`", cells[0]) for name, cells in ROWS.items()} == parameters
    assert list(ROWS) == list(DISTRIBUTIONS), "in the same order"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_means_of_the_table_are_the_expectations(name: str) -> None:
    formula = ROWS[name][1].split(",")[0]
    for sign, python in {"×": "*", "−": "-", "²": "**2", "Γ": "gamma"}.items():
        formula = formula.replace(sign, python)
    mean = eval(formula, {"exp": math.exp, "gamma": math.gamma, **EXAMPLES[name]})
    assert distribution("here", {"name": name, **EXAMPLES[name]}).expectation() == pytest.approx(mean, rel=1e-9)


def test_the_bounds_of_the_table_are_those_that_are_refused() -> None:
    for name, example in EXAMPLES.items():
        for key, sign, bound in re.findall(r"`(\w+)` ([≥>]) ([\d.]+)", ROWS[name][0]):
            below = float(bound) - (1e-9 if sign == "≥" else 0.0)
            with pytest.raises(ValueError, match=rf"{name}\.{key} must be (>=|>|in) {bound}"):
                distribution("here", {"name": name, **example, key: below})


def test_the_keys_and_the_limit_of_the_page_are_those_of_the_code() -> None:
    named = set(re.findall(r"^\| `([\w.]+)`(?:, `([\w.]+)`)? \|", PAGE, re.MULTILINE))
    keys = {key for row in named for key in row if "." in key}
    taking = {f"scenario.{field.name}" for field in fields(ScenarioConfig) if field.name.endswith("_delay")}
    assert keys == taking | {"cluster.jitter", "cluster.network.jitter", "scenario.up", "scenario.down"}
    assert ClusterConfig().jitter is None
    assert f"at most {INLINE} numbers" in PAGE


def test_the_examples_of_the_page_compose(tmp_path: Path) -> None:
    (tmp_path / "seconds.csv").write_text("0\n0.9\n1.1\n")
    words = re.findall(r"^python run.py '(.+)'$", PAGE, re.MULTILINE)
    assert len(words) == 4
    for word in words:
        compose([word.replace("seconds.csv", str(tmp_path / "seconds.csv"))])
