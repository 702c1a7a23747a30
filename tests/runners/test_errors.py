"""Failures of a run: an interrupt, and user errors in one line."""

import signal
from pathlib import Path

import pytest
import torch
from commands import SHORT, TIMING, Command, one_error_line, record_of

from runners.display import RunDisplay
from syncline.config import ConfigError
from syncline.records.events import read_events
from syncline.records.store import FINISHED, UNFINISHED, read_metrics, read_summary, status


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
    assert line.endswith(f"; rerun this command to resume: syncline run {' '.join(words)}")
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
        (["sede=1"], "sede: unknown key; did you mean seed=1?"),
        (["-m", "batch_size=32,0"], "batch_size must be >= 1, got 0"),
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


def test_no_traceback_is_shown_unless_debug_asks_for_it(command: Command) -> None:
    assert one_error_line(command("strategy=sync")).endswith("got 'sync'; did you mean k_sync or k_async?")
    with pytest.raises(ConfigError, match="strategy must be one of"):
        command("strategy=sync", "debug=true")


def test_a_sweep_has_one_folder_of_results(tmp_path: Path, command: Command) -> None:
    line = one_error_line(command("-m", "seed=0,1", *TIMING, f"results={tmp_path}/a,{tmp_path}/b"))
    assert line.startswith(f"error: results must have one value, which all runs share, got {tmp_path}/a,")
    assert not list(tmp_path.iterdir())


def test_a_working_directory_that_was_removed_is_named(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    line = one_error_line(command(*TIMING))
    assert line == "error: the working directory was removed; change to another one"
