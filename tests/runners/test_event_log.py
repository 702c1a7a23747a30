"""The event log of a run agrees with its summary."""

from collections import Counter
from pathlib import Path

import pytest
from commands import made
from log_checks import Rows, computed_versions, leads

from syncline.records.events import read_events, rows_of
from syncline.records.store import read_config, read_summary

RUNS = {
    "dssp, late pulls": ["scenario.pull_delay={name: exponential, mean: 0.1, probability: 0.2}", "epochs=2"],
    "ssp, two shards": ["strategy=ssp", "cluster.shards=2", "dataset.train_size=400", "epochs=2"],
    "ssp, to a time": ["strategy=ssp", "gradients=false", "epochs=null", "max_time_s=0.7"],
}


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_the_log_and_the_summary_agree(words: list[str], tmp_path: Path) -> None:
    record = made(tmp_path, *words)
    summary, config = read_summary(record), read_config(record)
    rows = Rows(rows_of(read_events(record / "events.arrow")))
    workers, shards = (range(config["cluster"][key]) for key in ("workers", "shards"))

    applied = [[row for row in rows.of("applied") if row.shard == shard] for shard in shards]
    assert [sum(row.worker == worker for row in applied[0]) for worker in workers] == summary["used_by_worker"]
    assert min(len(each) for each in applied) * config["batch_size"] == summary["samples"]
    assert min(each[-1].version for each in applied) == summary["updates"]
    assert all(each[-1].version == len({row.version for row in each}) for each in applied)
    assert max(leads([row for row in rows if row.shard == 0], len(workers))) == summary["max_lead"]

    staleness = Counter[str]()
    for shard in shards:
        computed_at = computed_versions([row for row in rows if row.shard == shard], shard)
        counted = [row.version - 1 - computed_at[row.push] for row in applied[shard]]
        assert counted == [row.value for row in applied[shard]]
        staleness.update(map(str, counted))
    assert staleness == summary["staleness"]
    assert summary["mean_staleness"] == pytest.approx(
        sum(int(key) * n for key, n in staleness.items()) / staleness.total()
    )

    times = [row.at for row in rows]
    assert times == sorted(times)
    assert times[-1] <= summary["time_s"]
    if summary["ended_by"] == "max_time_s":
        assert summary["time_s"] == 0.7
    else:  # the moment at which the last shard has made the last update
        assert max(row.at for row in rows.of("applied") if row.version == summary["updates"]) == summary["time_s"]
