"""docs/extending.md: the strategy that it shows is held to the contract, and runs."""

import re
from pathlib import Path

import pytest
from examples import scaled
from harness import Harness
from hypothesis import given
from hypothesis import strategies as st

from syncline.config import RunConfig
from syncline.simulation.run import simulate
from syncline.strategies import STRATEGIES
from syncline.strategies.protocol import StrategyOptions

ROOT = Path(__file__).parents[1]
(CODE,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)


def shown() -> type[StrategyOptions]:
    names: dict[str, type[StrategyOptions]] = {"__name__": "buffered"}  # type: ignore[dict-item]
    exec(CODE, names)
    return names["BufferedOptions"]


BufferedOptions = shown()


def test_the_readme_shows_a_part_of_it() -> None:
    (part,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert part in CODE


@scaled(40)
@given(
    size=st.integers(1, 4),
    num_workers=st.integers(1, 4),
    history=st.lists(st.tuples(st.sampled_from(["push"] * 8 + ["leave", "join"]), st.integers(0, 99)), max_size=30),
)
def test_it_keeps_the_contract(size: int, num_workers: int, history: list[tuple[str, int]]) -> None:
    harness = Harness(BufferedOptions(size=size), num_workers)  # type: ignore[call-arg]
    for kind, choice in history:
        harness.check_illegal_events_change_nothing()
        absent = [worker for worker in range(num_workers) if worker not in harness.counts]
        if kind == "push" and harness.running:
            harness.push(harness.running[choice % len(harness.running)], 0.001, loss=1.0)
        elif kind == "leave" and len(harness.counts) > 1:
            harness.leave(sorted(harness.counts)[choice % len(harness.counts)])
        elif kind == "join" and absent:
            harness.join(absent[choice % len(absent)])


def test_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "buffered", BufferedOptions)
    options = BufferedOptions(size=3)  # type: ignore[call-arg]
    config = RunConfig(strategy=options, gradients=False, max_updates=50)
    summary = simulate(config, lambda row: None, lambda progress: None)
    assert (summary["strategy"], summary["updates"], summary["gradients_used"]) == ("buffered", 50, 150)
