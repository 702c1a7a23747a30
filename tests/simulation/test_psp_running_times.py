"""PSP's Table 1 without gradients: 32 workers, 32 shards, as in conf/experiment/psp/table1.yaml."""

from dataclasses import replace

import pytest

from runners.planning import experiment_plan
from syncline.simulation.run import simulate

pytestmark = [pytest.mark.statistical, pytest.mark.xdist_group("psp_times")]


@pytest.fixture(scope="module")
def seconds() -> dict[str, float]:
    """Per update: over 240 updates of delayed sync (standard error 0.8 %), 120 of others (1.1 %)."""
    plan, _ = experiment_plan(["+experiment=psp/table1", "scale=paper", "seed=0"], with_sweeps=False)
    others = ("push28", "push28_pull90", "push20_pull75", "push28_newest")
    updates = {"delayed/sync": 240, "in_time/sync": 120, **{f"delayed/{label}": 120 for label in others}}
    runs = {entry.label.removesuffix("/timing"): entry.config for entry in plan.entries if "/timing" in entry.label}
    per_update = {}
    for label, num in updates.items():
        summary = simulate(replace(runs[label], max_updates=num), lambda _: None, lambda _: None)
        per_update[label] = summary["time_s"] / summary["updates"]
    return per_update


def test_partial_pushing_and_pulling_save_as_much_as_the_algorithms_predict(seconds: dict[str, float]) -> None:
    """Relative to sync; the paper's minutes are 0.825, 0.70 and 0.68 of sync's."""
    for label, expected in {"push28": 0.83, "push28_pull90": 0.75, "push20_pull75": 0.74}.items():
        assert seconds[f"delayed/{label}"] / seconds["delayed/sync"] == pytest.approx(expected, abs=0.03), label


def test_the_newest_tag_saves_more_than_the_paper_says(seconds: dict[str, float]) -> None:
    """-23 % and not the published -17 %: why `tag=step` is the default."""
    assert seconds["delayed/push28_newest"] / seconds["delayed/sync"] == pytest.approx(0.77, abs=0.02)


def test_late_messages_prolong_sync_by_nearly_a_third(seconds: dict[str, float]) -> None:
    """Section 4.4: "prolonged by nearly 30 %"."""
    assert 1.25 <= seconds["delayed/sync"] / seconds["in_time/sync"] <= 1.31
