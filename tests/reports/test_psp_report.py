"""PSP's Table 1 from small records written here: what is published stays, what is ours is computed."""

from pathlib import Path
from typing import Any

import pytest
from written import Written, write_records

from reports.__main__ import main
from reports.psp import table1
from reports.records import load_artefact, published

ROWS: dict[str, tuple[int, float, str, tuple[float, float]]] = {  # label -> c, b, tag, minutes of two seeds
    "sync": (32, 100.0, "step", (200.0, 202.0)),
    "push28": (28, 100.0, "step", (150.0, 151.5)),
    "push28_newest": (28, 100.0, "newest", (140.0, 141.4)),
    "sync_in_time": (32, 100.0, "step", (160.0, 161.6)),
}
LATE = {"probability": 0.0016, "source": {"name": "constant", "value": 4.0}}


def run_of(label: str, seed: int) -> Written:
    c, b, tag, minutes = ROWS[label]
    config: dict[str, Any] = {
        "strategy": {"name": "psp", "c": c, "b": b, "tag": tag},
        "cluster": {
            "name": "xeonphi32",
            "workers": 32,
            "shards": 32,
            "gradient_s": [9.3],
            "network": {"jitter": {"name": "uniform", "low": 0.0, "high": 0.05}},
        },
        "scenario": {"pull_delay": None if label == "sync_in_time" else LATE},
        "batch_size": 160,
        "max_updates": 879,
    }
    discarded = 32 - c
    summary = {
        "time_s": 60 * minutes[seed],
        "gradients_used": c,
        "gradients_discarded": discarded,
        "mean_staleness": 0.25,
    }
    return Written(label, seed, config, summary)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_records(tmp_path, "psp/table1", "timing", [run_of(label, seed) for label in ROWS for seed in (0, 1)], {})
    return tmp_path


def test_the_table_sets_the_published_beside_ours(results: Path) -> None:
    table = table1(load_artefact("psp/table1", "timing", results))
    rows = dict(zip(ROWS, table.texts(), strict=True))
    assert rows["sync"] == [
        "Sync", "32", "100", "199.97", "201.00 ± 1.41", "1.00", "1.000 ± 0.000", "0.00 ± 0.00", "0.250 ± 0.000",
        "0.1479",
    ]  # fmt: skip
    assert rows["push28"][3:8] == ["164.97", "150.75 ± 1.06", "0.82", "0.750 ± 0.000", "12.50 ± 0.00"]
    assert rows["push28_newest"][0] == "Sync+push:28, tag=newest"
    assert rows["push28_newest"][3:7] == ["—", "140.70 ± 0.99", "—", "0.700 ± 0.000"]


def test_the_notes_say_what_was_run_and_by_how_much_delays_prolong(results: Path) -> None:
    notes = " ".join(table1(load_artefact("psp/table1", "timing", results)).notes)
    for words in (
        "Engine simulation, virtual time, times alone",
        "879 updates = 90 epochs of 50,000 images in updates of 32 x 160",
        "9.3 s a gradient",
        "0.16 % of the pull responses 4 s late",
        "Seeds 0, 1",
        "tag=step",
        'Delays prolong Sync by 25.0 %; the paper says "nearly 30 %"',
        "make psp-table1 SCALE=timing",
    ):
        assert words in notes


def test_missing_runs_are_named_and_ratios_need_both_seeds(results: Path) -> None:
    (results / "sync-1" / "summary.json").unlink()
    (results / "sync_in_time-0" / "summary.json").unlink()
    (results / "sync_in_time-1" / "summary.json").unlink()
    table = table1(load_artefact("psp/table1", "timing", results))
    assert dict(zip(ROWS, table.texts(), strict=False))["push28"][6] == "0.750"
    notes = " ".join(table.notes)
    assert "NOT COMPLETE: 3 runs are missing: sync seed 1, sync_in_time seed 0" in notes
    assert "prolong" not in notes


def test_the_command_writes_and_prints_all_forms(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["psp/table1", "--scale", "timing", "--results", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "199.97" in shown
    assert "164.97" in shown
    stems = {path.name for path in (results / "reports").iterdir()}
    assert stems == {f"psp-table1-timing.{suffix}" for suffix in ("md", "csv", "tex")}


def test_the_published_numbers_are_the_papers() -> None:
    """psp.txt, Table 1: 17 % and 30 % less time than Sync, as the abstract of section 4.3 says."""
    rows = published("psp")["table1"]["rows"]
    assert [row[2] for row in rows.values()] == [199.97, 164.97, 139.95, 136.54]
    assert [row[3] for row in rows.values()] == [0.1479, 0.1609, 0.1565, 0.2914]
    assert 1 - rows["push28"][2] / rows["sync"][2] == pytest.approx(0.17, abs=0.01)
    assert 1 - rows["push28_pull90"][2] / rows["sync"][2] == pytest.approx(0.30, abs=0.005)
