"""The event log of a run agrees with its summary."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import TIMING, Default, made

from syncline.records.events import read_events
from syncline.records.store import read_config, read_summary

if TYPE_CHECKING:
    import pandas as pd

RUNS = {
    "asp, instant network": ["strategy=asp", "cluster=gtx1060_1080ti", *TIMING],
    "bsp": ["strategy=bsp", *TIMING],
    "ssp, two shards": ["strategy=ssp", "cluster.shards=2", "dataset.train_size=400", "epochs=2"],
    "dssp, late pulls": ["scenario.pull_delay={name: exponential, mean: 0.1, probability: 0.2}", *TIMING],
    "ssp, to a time": ["strategy=ssp", "gradients=false", "epochs=null", "max_time_s=0.7"],
}


@pytest.fixture(scope="module", params=["default", *RUNS])
def logged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "default":
        default: Default = request.getfixturevalue("default")
        return default.record
    return made(tmp_path_factory.mktemp("logged"), *RUNS[request.param])


@pytest.fixture(scope="module")
def log(logged: Path) -> "pd.DataFrame":
    table: pd.DataFrame = read_events(logged / "events.arrow").to_pandas()
    return table.astype({"kind": str, "because": str})


def of(log: "pd.DataFrame", kind: str) -> "pd.DataFrame":
    return log[log["kind"] == kind]


def test_the_log_and_the_summary_count_the_same(logged: Path, log: "pd.DataFrame") -> None:
    summary, config = read_summary(logged), read_config(logged)
    shards, workers = config["cluster"]["shards"], range(config["cluster"]["workers"])
    applied, discarded = of(log, "applied"), of(log, "discarded")
    used, dropped = applied[applied["shard"] == 0], discarded[discarded["shard"] == 0]  # a gradient counts once
    assert len(used) == summary["gradients_used"] > 0
    assert len(dropped) == summary["gradients_discarded"]
    assert [int((used["worker"] == worker).sum()) for worker in workers] == summary["used_by_worker"]
    assert [int((dropped["worker"] == worker).sum()) for worker in workers] == summary["discarded_by_worker"]
    by_shard = [applied[applied["shard"] == shard] for shard in range(shards)]
    assert min(rows["version"].max() for rows in by_shard) == summary["updates"]
    assert all(rows["version"].max() == rows["version"].nunique() for rows in by_shard)
    assert min(len(rows) for rows in by_shard) * config["batch_size"] == summary["samples"]


def test_the_log_and_the_summary_agree_on_staleness(logged: Path, log: "pd.DataFrame") -> None:
    summary, applied = read_summary(logged), of(log, "applied")
    counted = Counter(applied["value"].astype(int).astype(str))
    assert counted == summary["staleness"]
    assert summary["mean_staleness"] == pytest.approx(applied["value"].mean())
    computed_at = of(log, "pushed").set_index("push")["version"]
    assert (applied["version"] - 1 - computed_at[applied["push"]].to_numpy() == applied["value"]).all()


def test_the_log_and_the_summary_agree_on_leads(logged: Path, log: "pd.DataFrame") -> None:
    counts, largest = [0] * read_config(logged)["cluster"]["workers"], 0
    for worker in of(log, "pushed").query("shard == 0")["worker"]:
        counts[worker] += 1
        largest = max(largest, max(counts) - min(counts))
    assert read_summary(logged)["max_lead"] == largest


def test_the_log_and_the_summary_agree_on_time(logged: Path, log: "pd.DataFrame") -> None:
    summary = read_summary(logged)
    assert log["at"].is_monotonic_increasing
    assert log["at"].max() <= summary["time_s"]
    if summary["ended_by"] == "max_time_s":
        assert summary["time_s"] == 0.7
    else:  # the moment at which the last shard has made the last update
        last = of(log, "applied").query(f"version == {summary['updates']}")
        assert last.groupby("shard")["at"].max().max() == summary["time_s"]


def test_every_push_is_applied_or_discarded_at_most_once_and_only_the_last_ones_are_pending(
    logged: Path, log: "pd.DataFrame"
) -> None:
    config = read_config(logged)
    pushed = of(log, "pushed")["push"].tolist()
    ended = [*of(log, "applied")["push"], *of(log, "discarded")["push"]]
    assert len(set(pushed)) == len(pushed)
    assert len(set(ended)) == len(ended)
    assert set(ended) <= set(pushed)
    assert len(pushed) - len(ended) <= config["cluster"]["workers"] * config["cluster"]["shards"]


def test_a_worker_is_busy_for_no_more_than_all_of_the_time(logged: Path, log: "pd.DataFrame") -> None:
    """The share of the run in which it computes: what the log's gradients cover of it, to within one gradient."""
    summary, begun = read_summary(logged), of(log, "started")
    for worker, share in enumerate(summary["busy_by_worker"]):
        mine = begun[begun["worker"] == worker]
        covered = (mine["at"] + mine["value"]).clip(upper=summary["time_s"]) - mine["at"]
        assert abs(share * summary["time_s"] - covered.sum()) <= mine["value"].max()
        assert 0 <= share <= 1


def test_every_command_of_the_log_carries_its_reason(log: "pd.DataFrame") -> None:
    reasons = log[log["kind"].isin(["granted", "held", "discarded"])]["because"]
    assert (reasons.str.len() > 0).all()
