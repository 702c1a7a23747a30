"""Times over a baseline's by the target: closed forms on curves that rise evenly."""

from dataclasses import replace

import pytest
from written import RunInMemory, learned

from reports.measures import CROSSING, Target
from reports.records import Artefact, Run
from reports.targets import ratios_over_targets

SEEDS = (0, 1)


def rising(label: str, end_s: float, top: float) -> list[RunInMemory]:
    """From 0.1 to `top` on a straight line, which takes so long."""
    runs = [learned(label, seed, top) for seed in SEEDS]
    return [
        replace(run, metrics=[{"time_s": 0.0, "accuracy": 0.1}, {"time_s": end_s, "accuracy": top}]) for run in runs
    ]


def accuracy(run: Run) -> tuple[list[float], list[float]]:
    return run.curve("accuracy")


def test_the_ratio_is_drawn_where_all_seeds_of_both_sides_arrive_and_the_claims_target_is_marked() -> None:
    """BSP rises by 0.8 in 8 s, ASP by 0.4 in 2 s: twice as fast, and no longer above 0.5."""
    bsp, asp, low = rising("bsp", 8.0, 0.9), rising("asp", 2.0, 0.5), rising("low", 1.0, 0.1)
    artefact = Artefact("dssp/table1", "laptop", {}, [*bsp, *asp, *low], [])
    target = Target(0.45, accuracy, at=CROSSING)
    panel = ratios_over_targets(artefact, {"ASP": asp, "low": low, "none": []}, bsp, target, "test accuracy")
    curve, marked = panel.series
    assert (curve.label, marked.x) == ("ASP", [0.45, 0.45]), "a row that never arrives has no curve"
    assert curve.y == pytest.approx([0.5] * len(curve.y))
    assert 0.1 < min(curve.x) < 0.12
    assert 0.48 < max(curve.x) <= 0.5


def test_where_no_target_is_fixed_none_is_marked() -> None:
    bsp = rising("bsp", 8.0, 0.9)
    artefact, none = Artefact("dssp/table1", "laptop", {}, [*bsp], []), Target(None, accuracy, at=CROSSING)
    assert [one.label for one in ratios_over_targets(artefact, {"BSP": bsp}, bsp, none, "").series] == ["BSP"]
