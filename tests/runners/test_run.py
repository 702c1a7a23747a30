"""Runs from the command line to the record: what they leave, when they end, what is said when they cannot."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

import run
from runners.one import run_one
from syncline.config import GROUPS, METRICS, ConfigError, RunConfig, choices, compose
from syncline.records.events import read_events
from syncline.records.store import (
    ABSENT,
    FAILED,
    FINISHED,
    FORMAT,
    UNFINISHED,
    read_config,
    read_metrics,
    read_summary,
    status,
)

ROOT = Path(__file__).parents[2]
SHORT = ["epochs=3"]  # of the default run: DSSP, LeNet, digits
TIMING = ["gradients=false", "epochs=2"]  # nothing is loaded or learned


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


Command = Callable[..., Said]


def started(*words: str) -> "subprocess.Popen[str]":
    """The real command line, in a process group of its own as a terminal gives it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "run.py", *words],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def cli(*words: str) -> Said:
    process = started(*words)
    out, err = process.communicate(timeout=120)
    return Said(process.returncode, out, err)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The same entry point without the seconds that a new process takes."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run.command_line()
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Said(code, captured.out, captured.err)

    return call


def made(results: Path, *words: str) -> Path:
    """The record of one run, made in this process."""
    config, _ = compose(words)
    run_one(config, results, lambda progress: None)
    return results / config.identity


def record_of(results: Path, *words: str) -> Path:
    return results / compose(words)[0].identity


def without_wall_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]


def one_error_line(said: Said) -> str:
    assert said.code == 1
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    return line


@dataclass(frozen=True)
class Default:
    results: Path
    record: Path
    config: RunConfig
    said: Said


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Default:
    """The default run, short, made by the real command line."""
    results = tmp_path_factory.mktemp("default") / "results"
    said = cli(*SHORT, f"results={results}")
    assert said.code == 0, said.err
    config, _ = compose(SHORT)
    return Default(results, results / config.identity, config, said)


# What a run leaves.


def test_a_run_leaves_its_config_environment_events_metrics_and_summary(default: Default) -> None:
    assert {path.name for path in default.record.iterdir()} == {
        "config.yaml",
        "environment.json",
        "events.arrow",
        "metrics.jsonl",
        "summary.json",
    }
    assert [path.name for path in default.results.iterdir()] == [default.config.identity]
    assert status(default.record) == FINISHED
    assert read_config(default.record)["strategy"] == {"name": "dssp", "s_lower": 3, "r_max": 12, "bound": "paper"}
    environment = json.loads((default.record / "environment.json").read_text())
    assert environment["command"][1:] == [*SHORT, f"results={default.results}"]
    assert environment["packages"]["torch"] == metadata.version("torch")


def test_the_summary_says_what_was_run_and_what_came_out(default: Default) -> None:
    summary = read_summary(default.record)
    promised = "identity status strategy engine time_kind time_s updates gradients_used gradients_discarded samples "
    promised += "max_lead mean_staleness final best seed wall_s"
    assert set(promised.split()) <= set(summary)
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
    assert set(summary["final"]) == set(summary["best"]) == set(METRICS)


def test_the_evaluations_run_from_the_untrained_network_to_the_end_once_an_epoch(default: Default) -> None:
    rows, summary = read_metrics(default.record), read_summary(default.record)
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2, 3]
    assert (rows[0]["updates"], rows[0]["time_s"], rows[0]["train_loss"]) == (0, 0.0, None)
    assert (rows[-1]["updates"], rows[-1]["time_s"]) == (summary["updates"], summary["time_s"])
    for row in rows:
        assert row["samples"] == 32 * row["updates"]
        assert 0 <= row["accuracy"] <= row["top5"] <= 1
        assert row["learning_rate"] == default.config.optimizer.lr
    assert summary["final"] == {metric: rows[-1][metric] for metric in METRICS}
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
    assert default.said.err == ""


# The event log.

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
def log(logged: Path) -> pd.DataFrame:
    table: pd.DataFrame = read_events(logged / "events.arrow").to_pandas()
    return table.astype({"kind": str, "because": str})


def of(log: pd.DataFrame, kind: str) -> pd.DataFrame:
    return log[log["kind"] == kind]


def test_the_log_and_the_summary_count_the_same(logged: Path, log: pd.DataFrame) -> None:
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


def test_the_log_and_the_summary_agree_on_staleness(logged: Path, log: pd.DataFrame) -> None:
    summary, applied = read_summary(logged), of(log, "applied")
    counted = Counter(applied["value"].astype(int).astype(str))
    assert counted == summary["staleness"]
    assert summary["mean_staleness"] == pytest.approx(applied["value"].mean())
    computed_at = of(log, "pushed").set_index("push")["version"]
    assert (applied["version"] - 1 - computed_at[applied["push"]].to_numpy() == applied["value"]).all()


def test_the_log_and_the_summary_agree_on_leads(logged: Path, log: pd.DataFrame) -> None:
    counts, largest = [0] * read_config(logged)["cluster"]["workers"], 0
    for worker in of(log, "pushed").query("shard == 0")["worker"]:
        counts[worker] += 1
        largest = max(largest, max(counts) - min(counts))
    assert read_summary(logged)["max_lead"] == largest


def test_the_log_and_the_summary_agree_on_time(logged: Path, log: pd.DataFrame) -> None:
    summary = read_summary(logged)
    assert log["at"].is_monotonic_increasing
    assert log["at"].max() <= summary["time_s"]
    if summary["ended_by"] == "max_time_s":
        assert summary["time_s"] == 0.7
    else:  # the moment at which the last shard has made the last update
        last = of(log, "applied").query(f"version == {summary['updates']}")
        assert last.groupby("shard")["at"].max().max() == summary["time_s"]


def test_every_push_is_applied_or_discarded_at_most_once_and_only_the_last_ones_are_pending(
    logged: Path, log: pd.DataFrame
) -> None:
    config = read_config(logged)
    pushed = of(log, "pushed")["push"].tolist()
    ended = [*of(log, "applied")["push"], *of(log, "discarded")["push"]]
    assert len(set(pushed)) == len(pushed)
    assert len(set(ended)) == len(ended)
    assert set(ended) <= set(pushed)
    assert len(pushed) - len(ended) <= config["cluster"]["workers"] * config["cluster"]["shards"]


def test_a_worker_is_busy_for_no_more_than_all_of_the_time(logged: Path, log: pd.DataFrame) -> None:
    """The share of the run in which it computes: what the log's gradients cover of it, to within one gradient."""
    summary, begun = read_summary(logged), of(log, "started")
    for worker, share in enumerate(summary["busy_by_worker"]):
        mine = begun[begun["worker"] == worker]
        covered = (mine["at"] + mine["value"]).clip(upper=summary["time_s"]) - mine["at"]
        assert abs(share * summary["time_s"] - covered.sum()) <= mine["value"].max()
        assert 0 <= share <= 1


def test_every_command_of_the_log_carries_its_reason(log: pd.DataFrame) -> None:
    reasons = log[log["kind"].isin(["granted", "held", "discarded"])]["because"]
    assert (reasons.str.len() > 0).all()


# Asked again.


def test_a_finished_run_is_shown_and_not_repeated(default: Default) -> None:
    summary = default.record / "summary.json"
    before = summary.stat().st_mtime_ns
    begun = time.monotonic()
    said = cli(*SHORT, f"results={default.results}", "tracker=none", "threads=1")
    took_s = time.monotonic() - begun
    assert said.code == 0
    assert summary.stat().st_mtime_ns == before
    assert said.out.splitlines()[:-1] == default.said.out.splitlines()[:-1]
    assert "finished before; rerun=true repeats it" in said.out
    assert took_s < 60


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


def test_another_seed_is_another_run(default: Default) -> None:
    record = made(default.results.parent / "seeds", *SHORT, "seed=1")
    assert record.name != default.record.name
    assert read_metrics(record)[-1]["loss"] != read_metrics(default.record)[-1]["loss"]
    assert read_summary(record)["time_s"] != read_summary(default.record)["time_s"]


def test_status_says_what_is_there_and_starts_nothing(default: Default, command: Command) -> None:
    said = command("--status", *SHORT, f"results={default.results}")
    assert said.code == 0
    assert said.out.split() == ["finished", "run", default.config.identity]
    said = command("--status", "-m", "epochs=3,4", "seed=0", f"results={default.results}")
    lines = [line.split() for line in said.out.splitlines()]
    assert [(line[0], line[1]) for line in lines] == [("finished", "epochs=3"), ("absent", "epochs=4")]
    assert len(list(default.results.iterdir())) == 1


# When a run ends.


@pytest.mark.parametrize(
    ("target", "value", "reached"),
    [("accuracy", 0.2, lambda accuracy: accuracy >= 0.2), ("loss", 2.2, lambda loss: loss <= 2.2)],
)
def test_a_run_ends_early_at_the_first_evaluation_that_reaches_its_target(
    tmp_path: Path, target: str, value: float, reached: Callable[[float], bool]
) -> None:
    words = ["epochs=60", "strategy=bsp", "optimizer.lr=0.1", f"target.metric={target}", f"target.value={value}"]
    record = made(tmp_path, *words)
    summary, rows = read_summary(record), read_metrics(record)
    assert (summary["status"], summary["ended_by"]) == ("finished", "target")
    assert [reached(row[target]) for row in rows] == [False] * (len(rows) - 1) + [True]
    assert summary["target"] == {"metric": target, "value": value, "time_s": rows[-1]["time_s"]}
    assert summary["time_s"] == rows[-1]["time_s"]
    assert summary["epochs"] < 59


def test_a_target_that_is_not_reached_is_said_to_be_so(tmp_path: Path, command: Command) -> None:
    said = command("max_updates=5", "target.value=1.0", f"results={tmp_path}")
    assert "not reached" in said.out
    summary = read_summary(next(tmp_path.iterdir()))
    assert (summary["ended_by"], summary["target"]["time_s"]) == ("max_updates", None)


@pytest.mark.parametrize("gradients", ["true", "false"])
def test_a_run_ends_at_the_first_limit_that_it_reaches(tmp_path: Path, gradients: str) -> None:
    base = [f"gradients={gradients}", "dataset.train_size=400"]
    by_updates = read_summary(made(tmp_path, *base, "epochs=50", "max_updates=17", "max_time_s=1e6"))
    assert (by_updates["ended_by"], by_updates["updates"]) == ("max_updates", 17)
    by_time = read_summary(made(tmp_path, *base, "epochs=50", "max_updates=100000", "max_time_s=0.25"))
    assert (by_time["ended_by"], by_time["time_s"]) == ("max_time_s", 0.25)
    by_epochs = read_summary(made(tmp_path, *base, "epochs=1.5", "max_updates=100000", "max_time_s=1e6"))
    assert by_epochs["ended_by"] == "epochs"
    assert 600 <= by_epochs["samples"] < 600 + 32


def test_more_time_is_more_updates_and_never_another_course(tmp_path: Path) -> None:
    words = ["gradients=false", "epochs=null"]
    short, long = (made(tmp_path, *words, f"max_time_s={limit}") for limit in (0.5, 1.0))
    first, second = (read_events(record / "events.arrow").to_pandas() for record in (short, long))
    assert len(first) < len(second)
    pd.testing.assert_frame_equal(first, second[: len(first)], check_categorical=False)


# Times alone, and several shards.


@pytest.mark.parametrize("cluster", ["laptop", "gtx1060_1080ti"])
@pytest.mark.parametrize("strategy", ["bsp", "dssp"])
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


def test_two_shards_learn_under_ssp_within_its_bound(tmp_path: Path) -> None:
    words = ["strategy=ssp", "strategy.staleness=1", "cluster.shards=2", "epochs=4"]
    record = made(tmp_path, *words)
    summary = read_summary(record)
    assert summary["max_lead"] <= 2
    assert summary["updates"] <= summary["gradients_used"]
    assert summary["best"]["loss"]["value"] < read_metrics(record)[0]["loss"]


def test_any_strategy_and_model_run_the_same_way(tmp_path: Path, command: Command) -> None:
    said = command("strategy=dssp", "model=resnet110", "max_updates=3", f"results={tmp_path}")
    assert said.code == 0
    summary = read_summary(next(tmp_path.iterdir()))
    assert summary["identity"].startswith("dssp-resnet110-digits-s0-")
    assert summary["num_parameters"] > 1_700_000


def test_without_events_no_log_is_written_and_the_numbers_are_the_same(tmp_path: Path) -> None:
    with_log, without = (made(tmp_path / flag, *TIMING, f"runner.events={flag}") for flag in ("true", "false"))
    assert not (without / "events.arrow").exists()
    assert without_wall_time([read_summary(with_log)]) == without_wall_time([read_summary(without)])


# What goes wrong.


def test_a_run_that_diverges_says_so(tmp_path: Path, command: Command) -> None:
    words = ["optimizer.lr=1e8", "epochs=3", f"results={tmp_path}"]
    said = command(*words)
    record = next(tmp_path.iterdir())
    text = (record / "summary.json").read_text()
    summary = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert said.code == 1
    assert "diverged" in said.out
    assert (summary["status"], summary["ended_by"]) == ("diverged", "diverged")
    assert summary["samples"] < 3 * 1437
    again = command(*words)
    assert (again.code, "finished before" in again.out) == (1, True)


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def ended_at_last() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that are killed, with their children, should the test fail."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_ctrl_c_leaves_an_unfinished_record_and_the_next_call_completes_it(
    tmp_path: Path, command: Command, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    words = ["epochs=16", f"results={tmp_path}"]
    record = record_of(tmp_path, *words)
    process = started(*words)
    ended_at_last.append(process)
    metrics = record / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines() == ["interrupted; finished runs are kept, the same command goes on with the rest"]
    assert not (record / "summary.json").exists()
    assert status(record) == UNFINISHED
    assert read_metrics(record)[0]["epoch"] == 0
    assert read_events(record / "events.arrow").num_rows >= 0
    assert command(*words).code == 0
    assert status(record) == FINISHED
    assert int(read_metrics(record)[-1]["epoch"]) == 16


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["strategy=sync"], "strategy must be one of asp, bsp, dssp, ssp"),
        (["model=vgg"], "model must be one of alexnet_small, lenet, resnet110"),
        (["sede=1"], "sede: unknown key; the top level takes "),
        (["strategy.staleness=1"], "strategy.staleness: unknown key; strategy takes name, s_lower, r_max, bound"),
        (["seed=abc"], "seed: Value 'abc'"),
        (["batch_size=0"], "batch_size must be >= 1, got 0"),
        (["cluster.shards=2"], "strategy=dssp needs one logical server: cluster.shards must be 1, got 2"),
        (["epochs=null"], "one of epochs, max_updates, max_time_s must be set"),
        (["seed=0,1"], "seed=0,1"),
        (["cluster.jitter=0.05"], "cluster.jitter must be "),
        (["-m", "strategy=bsp,sync"], "strategy must be one of asp, bsp, dssp, ssp; got 'sync'"),
        (["-m", "seed=range(0,0)"], "seed=range(0,0)"),
        (["-m", "batch_size=32,0"], "batch_size must be >= 1, got 0"),
        (["--fast"], "unknown option --fast; allowed: -m"),
        (["+experiment=dssp/table99"], "experiment must be one of "),
        (["scale=huge"], "scale must be one of gpu, laptop, paper, smoke; got 'huge'"),
        (["dataset=cifar10", "dataset.root={empty}"], "cifar10 not found: "),
        (["dataset.train_size=99999"], "dataset digits: train_size=99999, allowed: 1..1437"),
        (["cluster.workers=2000"], "1437 training samples cannot be shared among 2000 workers"),
        (["results={file}/results"], "cannot write the record {file}/results/"),
        (["-m", "seed=0,1", "results={file}/results"], "cannot write the record {file}/results/plans/"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_of_the_user_is_one_line_on_stderr(
    tmp_path: Path, command: Command, words: list[str], line: str
) -> None:
    places = {"{empty}": str(tmp_path / "empty"), "{file}": str(tmp_path / "file")}
    (tmp_path / "file").write_text("x")
    for name, place in places.items():
        words, line = [word.replace(name, place) for word in words], line.replace(name, place)
    if not any(word.startswith("results=") for word in words):
        words = [*words, f"results={tmp_path / 'results'}"]
    assert line in one_error_line(command(*words))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_line(tmp_path: Path, command: Command) -> None:
    assert "device=cuda" in one_error_line(command("device=cuda", *SHORT, f"results={tmp_path}"))


def test_the_missing_data_sets_line_says_what_to_do(tmp_path: Path, command: Command) -> None:
    words = ["dataset=cifar10", f"dataset.root={tmp_path / 'empty'}", f"results={tmp_path / 'results'}"]
    line = one_error_line(command(*words))
    assert "dataset.download=true" in line
    assert "dataset.root=FOLDER" in line
    record = record_of(tmp_path / "results", *words)
    assert status(record) == FAILED
    assert "DataMissingError" in (record / "log.txt").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "broken record"), (json.dumps({"format": FORMAT + 1}), f"record format {FORMAT + 1}")],
)
def test_a_broken_or_newer_record_is_one_line(tmp_path: Path, command: Command, text: str, said: str) -> None:
    record = record_of(tmp_path, *SHORT)
    record.mkdir()
    (record / "summary.json").write_text(text)
    line = one_error_line(command(*SHORT, f"results={tmp_path}"))
    assert said in line
    assert str(record) in line


@pytest.mark.parametrize("size_bytes", [100, 4000], ids=["at the start", "at the end"])
def test_a_full_disk_is_one_line_and_the_record_stays_unfinished(
    tmp_path: Path, command: Command, size_bytes: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        said = command(*TIMING, f"results={tmp_path}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot write the record" in one_error_line(said)
    assert status(next(tmp_path.iterdir())) == UNFINISHED


def test_no_traceback_is_shown_unless_debug_asks_for_it() -> None:
    plain = cli("strategy=sync")
    assert "Traceback" not in plain.err
    assert one_error_line(plain).endswith("got 'sync'")
    debug = cli("strategy=sync", "debug=true")
    assert debug.code == 1
    assert debug.err.startswith("Traceback")
    assert "ConfigError: strategy must be one of" in debug.err


# Plans of many runs.


def test_a_sweep_makes_all_its_runs_lists_them_and_makes_none_twice(tmp_path: Path, command: Command) -> None:
    words = ["-m", "strategy=bsp,asp", "seed=0,1", *TIMING, f"results={tmp_path}", "jobs=2"]
    said = cli(*words)
    assert said.code == 0, said.err
    assert "sweep: 4 runs, 0 finished before, 4 to make" in said.err
    assert "sweep: 4 of 4 runs finished, 0 failed" in said.err
    listed = [line.split() for line in command("--status", *words).out.splitlines()]
    assert [line[:3] for line in listed] == [
        [FINISHED, f"strategy={strategy}", f"seed={seed}"] for strategy in ("bsp", "asp") for seed in (0, 1)
    ]
    times = {}
    for _, strategy, seed, identity in listed:
        summary = read_summary(tmp_path / identity)
        assert f"strategy={summary['strategy']}" == strategy
        assert f"seed={summary['seed']}" == seed
        times[identity] = (tmp_path / identity / "summary.json").stat().st_mtime_ns
    plan = json.loads((tmp_path / "plans" / "sweep-.json").read_text())
    assert [entry["identity"] for entry in plan["runs"]] == [line[3] for line in listed]

    again = command(*words)
    assert again.code == 0
    assert "4 finished before, 0 to make" in again.err
    assert {name: (tmp_path / name / "summary.json").stat().st_mtime_ns for name in times} == times


def test_a_run_of_a_plan_is_the_same_run_as_one_alone(tmp_path: Path, command: Command) -> None:
    words = ["dataset=glyphs10", "dataset.train_size=200", "dataset.test_size=50", "max_updates=8"]
    alone = made(tmp_path / "alone", *words)
    said = command("-m", *words, f"results={tmp_path / 'plan'}")
    assert said.code == 0
    planned = tmp_path / "plan" / alone.name
    assert without_wall_time(read_metrics(planned)) == without_wall_time(read_metrics(alone))
    assert read_events(planned / "events.arrow").equals(read_events(alone / "events.arrow"))


def test_one_failing_run_does_not_stop_the_others_and_fail_fast_does(tmp_path: Path, command: Command) -> None:
    """Times alone need no data, so of these three runs only the one that learns fails."""
    words = ["-m", "seed=0", "dataset=cifar10", f"dataset.root={tmp_path / 'empty'}", "max_updates=3", "jobs=1"]
    words += ["gradients=true,false", "strategy=asp,bsp"]

    def states(results: Path) -> list[str]:
        return [line.split()[0] for line in command("--status", *words, f"results={results}").out.splitlines()]

    said = command(*words, f"results={tmp_path / 'all'}")
    assert said.code == 1
    assert states(tmp_path / "all") == [FAILED, FAILED, FINISHED, FINISHED]
    failed = [line for line in said.err.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 2
    assert "cifar10 not found" in failed[0]
    assert "Traceback" not in said.err
    assert "sweep: 2 of 4 runs finished, 2 failed" in said.err

    again = command(*words, f"results={tmp_path / 'all'}")
    assert again.code == 1
    assert "4 runs, 2 finished before, 2 to make" in again.err

    fast = command(*words, f"results={tmp_path / 'fast'}", "fail_fast=true")
    assert fast.code == 1
    assert states(tmp_path / "fast") == [FAILED, ABSENT, ABSENT, ABSENT]


def test_ctrl_c_in_a_plan_ends_all_its_processes_and_finishes_nothing(
    tmp_path: Path, command: Command, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    words = ["-m", "seed=0,1,2", "gradients=false", "runner.events=false", "epochs=1e6", "jobs=2"]
    words.append(f"results={tmp_path}")
    process = started(*words)
    ended_at_last.append(process)
    wait_for(lambda: len(list(tmp_path.glob("*/metrics.jsonl"))) == 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)  # returns when the last child has let go of stderr
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("interrupted; ")
    states = [line.split()[0] for line in command("--status", *words).out.splitlines()]
    assert states == [UNFINISHED, UNFINISHED, ABSENT]


# Help.


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_group_with_its_choices(command: Command, flag: str) -> None:
    said = command(flag)
    assert (said.code, said.err) == (0, "")
    for group in (*GROUPS, "experiment"):
        (line,) = [line for line in said.out.splitlines() if line.split()[:1] == [group]]
        assert line.split()[1:] == ", ".join(choices(group)).split()
    for word in run.FLAGS:
        if word.startswith("--") and word not in ("--multirun", "--help"):
            assert word in said.out


def test_cfg_prints_the_composed_config_and_starts_nothing(tmp_path: Path, command: Command) -> None:
    said = command("--cfg", "strategy=ssp", "seed=7", f"results={tmp_path / 'results'}")
    assert (said.code, said.err) == (0, "")
    printed = yaml.safe_load(said.out)
    assert (printed["strategy"], printed["seed"]) == ({"name": "ssp", "staleness": 3}, 7)
    assert not (tmp_path / "results").exists()


def test_main_raises_what_the_command_line_shows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown option"):
        run.main(["--nonsense"])
    with pytest.raises(ConfigError, match="strategy must be one of"):
        run.main(["strategy=nonsense", f"results={tmp_path}"])
