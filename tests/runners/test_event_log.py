"""The event log of a run agrees with its summary."""

from pathlib import Path

import pytest
from commands import made
from log_checks import Rows, recount

from syncline.progress import Totals
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
    of_shards = [Rows(row for row in rows if row.shard in (-1, shard)) for shard in range(config["cluster"]["shards"])]
    totals = Totals.of_shards([recount(each, config["cluster"]["workers"], config["batch_size"]) for each in of_shards])
    for key in ("used_by_worker", "samples", "updates", "max_lead"):
        assert summary[key] == getattr(totals, key), key
    found = {str(value): count for value, count in enumerate(totals.staleness) if count}
    assert summary["staleness"] == found
    mean = sum(int(value) * count for value, count in found.items()) / sum(found.values())
    assert summary["mean_staleness"] == pytest.approx(mean)
    times = [row.at for row in rows]
    assert times == sorted(times)
    assert times[-1] <= summary["time_s"]
    if summary["ended_by"] == "max_time_s":
        assert summary["time_s"] == 0.7
    else:  # the moment at which the last shard has made the last update
        assert max(row.at for row in rows.of("applied") if row.version == summary["updates"]) == summary["time_s"]
