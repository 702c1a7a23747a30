"""Fixtures of the runs from the command line."""

import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import SHORT, Command, Default, Said

from runners import observer, plan, pool
from runners.commands import COMMANDS, main
from runners.stop import SIGNALS, handle_signals
from syncline.config import compose
from syncline.plan import Entry


def exit_code(*words: str) -> int:
    """Of a command, else of `run`, from the same entry point, without the seconds that a new process takes."""
    called = [*words] if words and words[0] in COMMANDS else ["run", *words]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["syncline", *called])
        return main(called)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> Said:
        capsys.readouterr()
        code = exit_code(*words)
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def default(tmp_path_factory: pytest.TempPathFactory) -> Default:
    """The default run, short, made by the command line."""
    results, out, err = tmp_path_factory.mktemp("default") / "results", io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", "200")
        code = exit_code(*SHORT, f"results={results}")
    assert code == 0, err.getvalue()
    config, _ = compose(SHORT)
    return Default(results, results / config.identity, config, Said(code, out.getvalue(), err.getvalue()))


class PoolHere(pool.Pool):
    """Has no processes: each run is made in this one when messages are waited for."""

    def __init__(self, entries: Sequence[Entry], results: Path, rerun: bool, cores: int) -> None:
        self._results, self._rerun = results, rerun
        self._begun, self._is_stopped = list[Entry](), False

    @property
    def num_running(self) -> int:
        return len(self._begun)

    def start(self, entry: Entry) -> None:
        self._begun.append(entry)

    def messages(self, timeout_s: float) -> Iterator[tuple[Entry, pool.Message]]:
        if not self._begun:
            return
        entry, received = self._begun.pop(0), list[pool.Message]()
        if self._is_stopped:
            received.append(pool.Stopped(""))
        else:
            pipe = SimpleNamespace(send=received.append)
            received.append(pool._make(entry.config, self._results, self._rerun, 1, pipe))  # type: ignore[arg-type]
        yield from ((entry, message) for message in received)

    def stop(self) -> None:
        self._is_stopped = True

    def close(self) -> None:
        pass


@pytest.fixture
def pool_here(monkeypatch: pytest.MonkeyPatch) -> type[PoolHere]:
    """Plans are made in this process, without the seconds that others take to import."""
    monkeypatch.setattr(plan, "Pool", PoolHere)
    return PoolHere


@pytest.fixture
def evaluator_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[observer.Evaluator]:
    """Evaluates in this process, on a thread, the states of the record in this test's folder."""
    from syncline.live.node.evaluation import evaluate

    def until_the_end() -> None:
        with suppress(ValueError):  # what is read then is no question
            evaluate(theirs)

    monkeypatch.setattr(os, "nice", lambda more: more)  # which all tests that follow would be
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    thread = threading.Thread(target=until_the_end)
    thread.start()
    with ours, theirs:
        yield observer.Evaluator(ours, tmp_path / "record")
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def signals() -> Iterator[None]:
    """They are handled as by a run, until the test ends."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handle_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def ended_at_last() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that are killed, with their children, should the test fail."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
