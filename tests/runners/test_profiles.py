"""Every cluster and every scenario makes a run of times alone, with its record."""

from pathlib import Path

import pytest
from commands import made

from syncline.config import choices
from syncline.records.store import read_summary

TIMES_ALONE = ["gradients=false", "strategy=bsp", "epochs=null", "max_updates=20", "runner.events=false"]


@pytest.mark.parametrize("name", choices("cluster"))
def test_a_cluster_makes_twenty_updates(name: str, tmp_path: Path) -> None:
    summary = read_summary(made(tmp_path, *TIMES_ALONE, f"cluster={name}"))
    assert (summary["updates"], summary["ended_by"]) == (20, "max_updates")
    assert summary["time_s"] > 0


@pytest.mark.parametrize("name", choices("scenario"))
def test_a_scenario_makes_twenty_updates_and_none_is_faster_for_it(name: str, tmp_path: Path) -> None:
    words = [*TIMES_ALONE, "cluster.shards=2", "strategy=ssp"]  # which goes on without a worker
    plain = read_summary(made(tmp_path, *words))
    summary = read_summary(made(tmp_path, *words, f"scenario={name}"))
    assert summary["updates"] == 20
    assert summary["time_s"] >= plain["time_s"]


def test_a_slow_server_delays_every_update_of_bsp_by_its_seconds(tmp_path: Path) -> None:
    words = [*TIMES_ALONE, "cluster=unit", "cluster.shards=2"]
    summary = read_summary(made(tmp_path, *words, "scenario=slow_server"))
    assert summary["time_s"] == pytest.approx(20 * (1.0 + 4.0))
