"""The process that evaluates the states of a run, and the line between it and the coordinator."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from live.here import Job
from live.peers import in_thread

from benchmarks.live_run import children, kill, name_of
from runners.failures import RunFailed
from runners.observer import MAX_LOST, Evaluator
from syncline.config import RunConfig, compose
from syncline.live.node.evaluation import MAX_MESSAGE_BYTES, SnapshotEvaluator, evaluate
from syncline.progress import Totals
from syncline.records.snapshots import write_state
from syncline.records.writer import RecordWriter

WORDS = ["runner=local", "model=softmax_regression", "runner.evaluate=during", "cluster.workers=1"]


def of_processes(test: Any) -> Any:
    """A test with real processes."""
    for mark in (pytest.mark.processes, pytest.mark.core, pytest.mark.xdist_group("forkserver")):
        test = mark(test)
    return test


@pytest.fixture
def config() -> RunConfig:
    return compose(WORDS)[0]


@pytest.fixture
def record(tmp_path: Path, config: RunConfig) -> Path:
    with RecordWriter(tmp_path / "record", config.as_dict(), with_events=False) as made:
        (made.folder / "log").mkdir()
        return made.folder


@pytest.fixture
def job(tmp_path: Path, config: RunConfig) -> Iterator[Job]:
    """Its keeper has the evaluator."""
    made = Job(config, tmp_path, WORDS)
    yield made
    assert made.end() == 0


def written(folder: Path, weights: torch.Tensor) -> list[Path]:
    path = folder / "state.safetensors"
    write_state(path, {"weights": weights, "buffers": torch.empty(0)}, Totals(4).snapshot(rate=0.1))
    return [path]


def evaluators(job: Job) -> list[int]:
    """The process that evaluates, unless it is just started again."""
    return [pid for pid in children(job.keeper.pid) if name_of(pid) == "evaluator"]


@of_processes
def test_it_equals_an_evaluation_in_this_process_at_the_lowest_priority_also_after_it_was_killed(
    config: RunConfig, record: Path, job: Job
) -> None:
    torch.manual_seed(1)
    here, evaluator = SnapshotEvaluator(config), Evaluator(job.place.line, record)
    assert evaluator.about() == here.about()
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in evaluators(job)] == [19]
    paths = written(record, torch.randn(here.num_parameters))
    for _ in range(2):
        assert evaluator.row(paths, 1.5) == here.row(list(map(str, paths)), 1.5)
        assert evaluator.is_finite(paths)
        (pid,) = evaluators(job)
        kill(pid)
    assert not evaluator.is_finite(written(record, torch.full([here.num_parameters], torch.nan)))


@of_processes
def test_an_error_is_reported_and_the_next_question_is_answered(record: Path, job: Job) -> None:
    evaluator = Evaluator(job.place.line, record)
    with pytest.raises(RunFailed, match=r"evaluator 0: .*absent\.safetensors"):
        evaluator.row([record / "absent.safetensors"], 0.0)
    next((record / "log").glob("failure-*")).unlink()
    assert evaluator.about()["num_parameters"] == 650


# The line; the other end is played by the test.


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The coordinator's end, and the evaluator's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_what_was_asked_twice_is_answered_once(line: tuple[socket.socket, socket.socket], record: Path) -> None:
    """The coordinator asks again when the evaluator starts, which may have found the question already."""
    ours, theirs = line
    for question in ([1, str(record), "about"], [1, str(record), "about"], [2, str(record), "nothing"]):
        ours.sendall(json.dumps(question).encode())
    assert evaluate(theirs) == 1
    said = [json.loads(ours.recv(MAX_MESSAGE_BYTES)) for _ in range(3)]
    assert [len(each) for each in said] == [0, 2, 1]
    assert (said[1][0], said[2]) == (1, [2])
    assert list((record / "log").glob("failure-evaluator-0.json"))


Play = Callable[[socket.socket, list[Any]], None]


def asked(line: tuple[socket.socket, socket.socket], play: Play) -> dict[str, Any]:
    """What the coordinator is answered by this evaluator, which is given the question."""
    ours, theirs = line
    evaluator = Evaluator(ours, Path("record"))
    thread = in_thread(lambda: play(theirs, json.loads(theirs.recv(MAX_MESSAGE_BYTES))))
    try:
        return evaluator.about()
    finally:
        thread.join()


def say(sock: socket.socket, *messages: list[Any]) -> None:
    for message in messages:
        sock.sendall(json.dumps(message).encode())


def test_answers_to_others_are_not_taken_for_its_own(line: tuple[socket.socket, socket.socket]) -> None:
    """Those to a coordinator that was killed are left on the line."""

    def play(sock: socket.socket, question: list[Any]) -> None:
        say(sock, [question[0] - 1, "another's"], [question[0] - 1], [question[0], {"num_train": 7}])

    assert asked(line, play) == {"num_train": 7}


def test_an_evaluator_that_starts_again_is_asked_again(line: tuple[socket.socket, socket.socket]) -> None:
    def play(sock: socket.socket, question: list[Any]) -> None:
        say(sock, [])
        again = json.loads(sock.recv(MAX_MESSAGE_BYTES))
        say(sock, [again[0], {"is_again": again == question}])

    assert asked(line, play) == {"is_again": True}


def test_an_evaluator_that_is_killed_again_and_again_ends_the_run(line: tuple[socket.socket, socket.socket]) -> None:
    """It may need more memory than there is."""
    with pytest.raises(RunFailed, match=f"the process that evaluates was killed {MAX_LOST} times"):
        asked(line, lambda sock, question: say(sock, *([] for _ in range(MAX_LOST + 1))))


def test_no_answer_is_awaited_once_the_run_has_ended(line: tuple[socket.socket, socket.socket]) -> None:
    evaluator = Evaluator(line[0], Path("record"))
    evaluator.close()
    with pytest.raises(RunFailed, match="the run has ended"):
        evaluator.about()
