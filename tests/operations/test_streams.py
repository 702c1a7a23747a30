"""Output that nobody can read is lost, and nothing else: the exit code is that of the work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT
from operations.planned import finish, write_plan

STATUS = [sys.executable, "-m", "syncline", "status", "--results"]
RUN = [sys.executable, "run.py", "gradients=false", "max_updates=3", "jobs=1"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_plan(tmp_path, "paper-table-smoke", [0, 1])
    for seed in (0, 1):
        finish(tmp_path, seed)
    return tmp_path


def ended(command: list[str], shell: str = '"$@"', **environment: str) -> "subprocess.CompletedProcess[str]":
    words = ["bash", "-o", "pipefail", "-c", shell, "bash", *command]
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("shell", "out"), [('"$@" | true', ""), ('"$@" | head -1', "plan"), ('"$@" >&-', ""), ('"$@" 2>&- >&-', "")]
)
def test_a_closed_pipe_or_stream_is_no_error(results: Path, shell: str, out: str) -> None:
    said = ended([*STATUS, str(results)], shell)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(out)


def test_characters_that_the_encoding_lacks_are_no_error(results: Path) -> None:
    said = ended([*STATUS, str(results), "paper/table"], PYTHONIOENCODING="ascii")
    assert (said.returncode, said.stderr) == (0, "")
    assert "?" in said.stdout


@pytest.mark.processes
@pytest.mark.parametrize("shell", ['"$@" | true', '"$@" >&-', 'PYTHONIOENCODING=ascii "$@"'])
@pytest.mark.parametrize("words", [[], ["-m", "seed=0,1"]], ids=["a run", "a sweep"])
def test_finished_work_is_a_success(tmp_path: Path, words: list[str], shell: str) -> None:
    said = ended([*RUN, *words, f"results={tmp_path}"], shell)
    assert said.returncode == 0, said.stderr
    assert "Traceback" not in said.stderr
