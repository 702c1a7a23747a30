"""Failures of a run: divergence, an interrupt, and user errors in one line."""

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from commands import SHORT, TIMING, Command, cli, one_error_line, record_of, started, wait_for

from runners import command_line
from syncline.config import ConfigError
from syncline.records.events import read_events
from syncline.records.store import FAILED, FINISHED, FORMAT, UNFINISHED, read_metrics, status
from syncline.strategies import STRATEGIES

STRATEGY_NAMES = ", ".join(sorted(STRATEGIES))


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


@pytest.mark.processes
@pytest.mark.core
def test_ctrl_c_leaves_an_unfinished_record_and_the_next_call_completes_it(
    tmp_path: Path, command: Command, ended_at_last: list["subprocess.Popen[str]"]
) -> None:
    words = ["epochs=16", f"results={tmp_path}"]
    record = record_of(tmp_path, *words)
    process = started(*words)
    ended_at_last.append(process)
    metrics = record / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 2, process)  # it has made updates
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(f"interrupted; {record.name} checkpointed at update ")
    assert line.endswith(f"; rerun this command to resume: python run.py {' '.join(words)}")
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
        (["strategy=sync"], f"strategy must be one of {STRATEGY_NAMES}"),
        (["model=vgg"], "model must be one of alexnet_small, bert_base"),
        (["sede=1"], "sede: unknown key; did you mean seed=1?"),
        (["strategy.staleness=1"], "strategy.staleness: unknown key; strategy takes s_lower, r_max, bound"),
        (["seed=abc"], "seed must be a whole number, got abc"),
        (["batch_size=0"], "batch_size must be >= 1, got 0"),
        (["cluster.shards=2"], "strategy=dssp needs one logical server: cluster.shards must be 1, got 2"),
        (["epochs=null"], "one of epochs, max_updates, max_time_s must be set"),
        (["seed=0,1"], "seed=0,1"),
        (["cluster.jitter=0.05"], "cluster.jitter must be "),
        (["-m", "strategy=bsp,sync"], f"strategy must be one of {STRATEGY_NAMES}; got 'sync'"),
        (["-m", "seed=range(0,0)"], "seed=range(0,0)"),
        (["-m", "batch_size=32,0"], "batch_size must be >= 1, got 0"),
        (["--fast"], "unknown option --fast; allowed: -m"),
        (["+experiment=dssp/table99"], "experiment must be one of "),
        (["scale=huge"], "scale must be one of gpu, laptop, paper, smoke, workstation; got 'huge'"),
        (["dataset=cifar10", "dataset.root={empty}"], "cifar10 not found: "),
        (["dataset.train_size=99999"], "dataset.train_size must be <= 1,437, all that digits has, or null, got 99999"),
        (["cluster.workers=2000"], "cluster.workers must be <= 1437: dataset=digits has 1,437 training"),
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
    ("text", "said"), [("{", "broken record"), (json.dumps({"format": FORMAT + 1}), f"record format {FORMAT + 1}")]
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


@pytest.mark.processes
def test_no_traceback_is_shown_unless_debug_asks_for_it() -> None:
    plain = cli("strategy=sync")
    assert "Traceback" not in plain.err
    assert one_error_line(plain).endswith("got 'sync'; did you mean k_sync or k_async?")
    debug = cli("strategy=sync", "debug=true")
    assert debug.code == 1
    assert debug.err.startswith("Traceback")
    assert "ConfigError: strategy must be one of" in debug.err


def test_main_raises_what_the_command_line_shows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown option"):
        command_line.main(["--nonsense"])
    with pytest.raises(ConfigError, match="strategy must be one of"):
        command_line.main(["strategy=nonsense", f"results={tmp_path}"])
