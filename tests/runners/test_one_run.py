"""One run: its record, a second request for it, its end, its results."""

import json
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from commands import SHORT, TIMING, Command, Default, made, without_wall_time

from runners import one
from runners.commands import call
from syncline.config import RunConfig
from syncline.metrics import METRICS
from syncline.records.events import read_events
from syncline.records.store import FINISHED, read_config, read_metrics, read_summary, status

# The record of a run.


def test_a_run_leaves_a_finished_record_with_its_config_and_environment(default: Default) -> None:
    assert [path.name for path in default.results.iterdir()] == [default.config.identity]
    assert status(default.record) == FINISHED
    assert read_config(default.record)["strategy"] == {"name": "dssp", "s_lower": 3, "r_max": 12, "bound": "paper"}
    environment = json.loads((default.record / "environment.json").read_text())
    assert environment["command"][1:] == ["run", *SHORT, f"results={default.results}"]
    assert environment["packages"]["torch"] == metadata.version("torch")


def test_the_summary_holds_the_run_and_its_results(default: Default) -> None:
    summary = read_summary(default.record)
    said = {key: summary[key] for key in ("identity", "status", "ended_by", "strategy", "engine", "time_kind", "seed")}
    assert said == {
        "identity": default.config.identity,
        "status": "finished",
        "ended_by": "epochs",
        "strategy": "dssp",
        "engine": "simulation",
        "time_kind": "virtual",
        "seed": 0,
    }
    assert summary["samples"] == 32 * summary["updates"] == 32 * summary["gradients_used"]
    assert 3 * 1437 <= summary["samples"] < 3 * 1437 + 32
    assert summary["gradients_discarded"] == 0
    assert summary["wall_s"] > 0
    assert set(summary["final"]) == set(summary["best"]) == set(METRICS["classification"])


def test_the_evaluations_run_from_the_untrained_network_to_the_end_once_an_epoch(default: Default) -> None:
    rows, summary = read_metrics(default.record), read_summary(default.record)
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2, 3]
    assert (rows[0]["updates"], rows[0]["time_s"], rows[0]["train_loss"]) == (0, 0.0, None)
    assert (rows[-1]["updates"], rows[-1]["time_s"]) == (summary["updates"], summary["time_s"])
    for row in rows:
        assert row["samples"] == 32 * row["updates"]
        assert 0 <= row["accuracy"] <= row["top5"] <= 1
        assert row["learning_rate"] == default.config.optimizer.lr
    assert summary["final"] == {metric: rows[-1][metric] for metric in METRICS["classification"]}
    for metric, pick in (("accuracy", max), ("top5", max), ("loss", min)):
        best = pick(rows, key=lambda row: row[metric])
        assert summary["best"][metric]["value"] == best[metric]
        assert summary["best"][metric]["time_s"] == next(r["time_s"] for r in rows if r[metric] == best[metric])


def test_a_run_ends_with_a_small_table_and_the_place_of_its_record(default: Default) -> None:
    summary, out = read_summary(default.record), default.said.out
    assert out.splitlines()[0].strip() == default.config.identity
    assert f"record {default.record} (finished)" in out
    for words in ("accuracy", "best", "updates", "gradients", "largest lead", "mean staleness", "virtual"):
        assert words in out, words
    assert f"{summary['final']['accuracy']:.4f}" in out
    assert f"{summary['mean_staleness']:.2f}" in out
    assert all(line.startswith("update ") for line in default.said.err.splitlines()), "progress, if it takes long"


# Requested again.


def test_a_finished_run_is_shown_and_not_repeated(default: Default, command: Command) -> None:
    summary = default.record / "summary.json"
    before = summary.stat().st_mtime_ns
    said = command(*SHORT, f"results={default.results}", "tracker=none", "threads=1")
    assert said.code == 0
    assert summary.stat().st_mtime_ns == before
    assert said.out.splitlines()[:-1] == default.said.out.splitlines()[:-1]
    assert "finished before; rerun=true repeats it" in said.out


def test_rerun_repeats_a_finished_run_with_the_same_bits(default: Default, tmp_path: Path, command: Command) -> None:
    record = tmp_path / default.record.name
    shutil.copytree(default.record, record)
    before = (record / "summary.json").stat().st_mtime_ns
    said = command(*SHORT, f"results={tmp_path}", "rerun=true")
    assert said.code == 0
    assert "finished before" not in said.out
    assert (record / "summary.json").stat().st_mtime_ns > before
    assert without_wall_time(read_metrics(record)) == without_wall_time(read_metrics(default.record))
    assert without_wall_time([read_summary(record)]) == without_wall_time([read_summary(default.record)])
    assert read_events(record / "events.arrow").equals(read_events(default.record / "events.arrow"))


@pytest.mark.parametrize("beside", [("rerun", "old"), ("old",)])
def test_a_record_whose_replacement_was_killed_is_put_back(tmp_path: Path, beside: tuple[str, ...]) -> None:
    record = made(tmp_path, *TIMING)
    number = (record / "summary.json").stat().st_ino
    for kind in beside[1:]:
        shutil.copytree(record, f"{record}.{kind}")
    record.rename(f"{record}.{beside[0]}")
    made(tmp_path, *TIMING)
    assert (record / "summary.json").stat().st_ino == number


# The end of a run.


def test_a_run_ends_early_at_the_first_evaluation_that_reaches_its_target(tmp_path: Path) -> None:
    words = ["model=softmax_regression", "strategy=bsp", "epochs=5", "eval_every_epochs=0.1"]
    record = made(tmp_path, *words, "target.metric=loss", "target.value=1.5")
    summary, rows = read_summary(record), read_metrics(record)
    assert (summary["status"], summary["ended_by"]) == ("finished", "target")
    assert [row["loss"] <= 1.5 for row in rows] == [False] * (len(rows) - 1) + [True]
    assert summary["target"] == {"metric": "loss", "value": 1.5, "time_s": rows[-1]["time_s"]}
    assert summary["time_s"] == rows[-1]["time_s"]
    assert 2 < len(rows) < 40


# Times alone, and several shards.


@pytest.mark.parametrize(("cluster", "strategy"), [("laptop", "dssp"), ("gtx1060_1080ti", "bsp")])
def test_times_alone_are_those_of_the_run_that_learns(tmp_path: Path, cluster: str, strategy: str) -> None:
    """With a network (whose messages are as large as the model) and without."""
    words = [f"cluster={cluster}", f"strategy={strategy}", "dataset.train_size=300", "epochs=2"]
    learned, timed = (read_summary(made(tmp_path, *words, f"gradients={flag}")) for flag in ("true", "false"))
    for key in ("time_s", "updates", "samples", "epochs", "max_lead", "staleness", "used_by_worker", "busy_by_worker"):
        assert timed[key] == learned[key], key
    assert (timed["final"], timed["best"]) == (None, None)
    assert learned["final"] is not None


def test_a_run_of_times_alone_says_so_and_shows_no_metrics(tmp_path: Path, command: Command) -> None:
    said = command(*TIMING, f"results={tmp_path}")
    assert said.code == 0
    assert "timing" in said.out
    assert "accuracy" not in said.out
    assert read_metrics(next(tmp_path.iterdir())) == []


def test_without_events_no_log_is_written_and_the_numbers_are_the_same(tmp_path: Path) -> None:
    with_log, without = (made(tmp_path / flag, *TIMING, f"runner.events={flag}") for flag in ("true", "false"))
    assert not (without / "events.arrow").exists()
    assert without_wall_time([read_summary(with_log)]) == without_wall_time([read_summary(without)])


def test_a_precision_without_instructions_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one, "emulates_bfloat16", lambda: True)
    monkeypatch.setattr(one, "has_gpu", lambda: False)
    told = "precision=bfloat16: this CPU has no instructions for it"
    words = ["max_updates=1", "dataset.train_size=128", "dataset.test_size=8", f"results={tmp_path}"]
    for own, times in ((["precision=bfloat16"], 1), (["precision=bfloat16"], 0), (["precision=float32"], 0)):
        assert call(["run", *words, *own]) == 0
        assert capsys.readouterr().err.count(told) == times, own  # not of a finished run
    config = RunConfig(epochs=1.0, precision="bfloat16")
    assert one.slow_precision([replace(config, gradients=False)]) == ""
    monkeypatch.setattr(one, "has_gpu", lambda: True)
    assert one.slow_precision([config]) == ""
    assert one.slow_precision([config, replace(config, device="cpu")]).startswith(told)
    monkeypatch.setattr(one, "emulates_bfloat16", lambda: False)
    assert one.slow_precision([replace(config, device="cpu")]) == ""
