"""One of the runs of `python -m benchmarks kills`, a short one."""

import pytest

from benchmarks.kills import Series

pytestmark = pytest.mark.processes


def test_a_run_whose_parts_are_killed_at_random_times_ends_by_itself_with_every_mini_batch_used_once(
    tmp_path, monkeypatch
):
    """No process is left behind. With this seed each part that one host has is among them."""
    monkeypatch.setattr("benchmarks.kills.PAUSES_S", (0.1, 0.6))
    series = Series("dssp", 9, tmp_path, seconds=5.0)
    series.run(5)
    assert {kill.victim for kill in series.kills} == {"worker", "shard", "coordinator", "keeper", "torchrun"}
