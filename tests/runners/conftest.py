"""Fixtures of the runs from the command line."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from commands import SHORT, Command, Default, Said, cli

from runners import command_line
from syncline.config import compose


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The same entry point without the seconds that a new process takes."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.run_and_exit(sys.argv[1:])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def default(tmp_path_factory: pytest.TempPathFactory) -> Default:
    """The default run, short, made by the real command line."""
    results = tmp_path_factory.mktemp("default") / "results"
    said = cli(*SHORT, f"results={results}")
    assert said.code == 0, said.err
    config, _ = compose(SHORT)
    return Default(results, results / config.identity, config, said)


@pytest.fixture
def ended_at_last() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that are killed, with their children, should the test fail."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
