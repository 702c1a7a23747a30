"""Rules that need the weights of a push: with real processes a replay of the log finds the same bits."""

import pytest
from live.here import Launcher

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    "words",
    [
        ["strategy=psp", "strategy.c=1", "strategy.b=50", "cluster.shards=2", "update=delay_compensated"],
        ["strategy=k_async", "strategy.k=2", "update=gap_aware", "local.steps=4", "local.by_speed=true"],
        ["strategy=asp", "local=easgd", "local.steps=2", "update=elastic", "optimizer.lr=1", "optimizer.momentum=0"],
    ],
    ids=["blocks of several versions", "pushes that wait for others", "replicas at the workers"],
)
def test_a_replay_finds_the_same_bits(words: list[str], launch: Launcher) -> None:
    made = launch(*words, "model=softmax_regression", "cluster.workers=3", "epochs=null", "max_updates=24")
    assert sum(map(int, made.summary["staleness"])) > 0, "some pushes are stale"
    made.replayed()
