"""What studies read of a run: the gradients that it used, threw away and computed."""

from pathlib import Path

import pytest
from commands import TIMING

from runners.one import run_one
from syncline.config import compose
from syncline.records.outcomes import read_outcome
from syncline.records.store import read_summary


@pytest.mark.parametrize(
    ("strategy", "wasted", "computed"),
    [
        (["strategy=bsp"], 0.0, 1.0),
        (["strategy=k_sync", "strategy.k=1", "cluster.gradient_s=[1.0,2.0,2.0,2.0]"], 0.75, 1.0),  # before their end
        (["strategy=backup", "strategy.backups=1"], 0.25, 4 / 3),
    ],
    ids=["bsp", "k_sync", "backup"],
)
def test_gradients_that_are_discarded_or_interrupted_are_wasted(
    tmp_path: Path, strategy: list[str], wasted: float, computed: float
) -> None:
    """Four workers. For each gradient that is used K = 1 cancels three; of four equal workers' one is late."""
    config, _ = compose([*TIMING, "cluster.workers=4", "cluster.gradient_s=[1.0]", "max_updates=25", *strategy])
    run_one(config, tmp_path, lambda progress: None)
    outcome = read_outcome(tmp_path / config.identity)
    assert outcome.counts is not None
    counts = outcome.counts
    assert counts.wasted / counts.begun == pytest.approx(wasted, abs=0.04)
    assert counts.computed / counts.used == pytest.approx(computed, rel=0.04)
    assert counts.used == read_summary(tmp_path / config.identity)["gradients_used"]
