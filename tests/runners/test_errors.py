"""Failures of a run: divergence, an interrupt, and user errors in one line."""

import json
import resource
import signal
from pathlib import Path

import pytest
import torch
from commands import SHORT, TIMING, Command, one_error_line, record_of

from runners.display import RunDisplay
from syncline.config import ConfigError
from syncline.records.events import read_events
from syncline.records.store import FAILED, FINISHED, FORMAT, UNFINISHED, read_metrics, read_summary, status
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


def test_ctrl_c_leaves_an_unfinished_record_and_the_next_call_completes_it(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["model=softmax_regression", "epochs=2", f"results={tmp_path}"]
    record = record_of(tmp_path, *words)
    with monkeypatch.context() as patched:
        patched.setattr(RunDisplay, "progressed", lambda display, progress: signal.raise_signal(signal.SIGINT))
        said = command(*words)
    assert (said.code, said.out) == (130, "")
    line = said.err.splitlines()[-1]
    assert line.startswith(f"interrupted; {record.name} checkpointed at update ")
    assert line.endswith(f"; rerun this command to resume: python run.py {' '.join(words)}")
    assert not (record / "summary.json").exists()
    assert status(record) == UNFINISHED
    assert read_metrics(record)[0]["epoch"] == 0
    assert read_events(record / "events.arrow").num_rows > 0
    assert command(*words).code == 0
    assert status(record) == FINISHED
    assert [int(row["epoch"]) for row in read_metrics(record)] == [0, 1, 2]
    assert read_summary(record)["restarts"] == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["strategy=sync"], f"strategy must be one of {STRATEGY_NAMES}"),
        (["sede=1"], "sede: unknown key; did you mean seed=1?"),
        (["seed=0,1"], "seed=0,1"),
        (["-m", "strategy=bsp,sync"], f"strategy must be one of {STRATEGY_NAMES}; got 'sync'"),
        (["-m", "seed=range(0,0)"], "seed=range(0,0)"),
        (["-m", "batch_size=32,0"], "batch_size must be >= 1, got 0"),
        (["--fast"], "unknown option --fast; allowed: -m"),
        (["+experiment=dssp/table99"], "experiment must be one of "),
        (["scale=huge"], "scale must be one of gpu, laptop, paper, smoke, workstation; got 'huge'"),
        (["dataset.train_size=99999"], "dataset.train_size must be <= 1,437"),
        (["cluster.workers=2000"], "cluster.workers must be <= 1437: dataset=digits has 1,437 training"),
        (["results={file}/results"], "cannot write the record {file}/results/"),
        (["-m", "seed=0,1", "results={file}/results"], "cannot write the record {file}/results/plans/"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_of_the_user_is_one_line_on_stderr(
    tmp_path: Path, command: Command, words: list[str], line: str
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    words = [f"results={tmp_path / 'results'}", *(word.format(file=file) for word in words)]
    assert line.format(file=file) in one_error_line(command(*words))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_line(tmp_path: Path, command: Command) -> None:
    assert "device=cuda" in one_error_line(command("device=cuda", *SHORT, f"results={tmp_path}"))


def test_the_missing_data_sets_line_says_what_to_do(tmp_path: Path, command: Command) -> None:
    words = ["dataset=cifar10", f"dataset.root={tmp_path / 'empty'}", f"results={tmp_path / 'results'}"]
    line = one_error_line(command(*words))
    assert "cifar10 not found: " in line
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


def test_no_traceback_is_shown_unless_debug_asks_for_it(command: Command) -> None:
    assert one_error_line(command("strategy=sync")).endswith("got 'sync'; did you mean k_sync or k_async?")
    with pytest.raises(ConfigError, match="strategy must be one of"):
        command("strategy=sync", "debug=true")
