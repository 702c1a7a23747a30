"""Simulated runs on any system; runs of real processes are refused in one line where they are not possible."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, Said

from runners.one import check_possible
from runners.stop import SIGNALS, block_signals
from syncline.config import ConfigError, compose

# Loaded by every interpreter before anything else. The standard library may import fcntl: it knows its own system.
ELSEWHERE = f"""
import builtins, multiprocessing, os, signal

for module, names in (
    (signal, "SIGUSR1 SIGUSR2 SIGHUP pthread_sigmask"),
    (os, "fork forkpty sched_getaffinity setpriority getpriority killpg"),
):
    for name in names.split():
        delattr(module, name)

multiprocessing.set_start_method("spawn")  # the default elsewhere
real = builtins.__import__

def absent(name, globals=None, *others, **more):
    asks = str((globals or {{}}).get("__file__", ""))
    if name in ("fcntl", "resource", "termios") and asks.startswith({str(ROOT)!r}) and ".venv" not in asks:
        raise ImportError(name)
    return real(name, globals, *others, **more)

builtins.__import__ = absent
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of a process on another system."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "sitecustomize.py").write_text(ELSEWHERE)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "system"), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def said(environment: dict[str, str], *words: str) -> Said:
    ended = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return Said(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.processes
def test_sweeps_status_and_reports_work_where_nothing_is_forked(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    results = tmp_path / "results"
    words = ["seed=0", "gradients=true,false", "max_updates=3", "jobs=1"]
    sweep = said(elsewhere, "run.py", "-m", *words, f"results={results}")
    assert (sweep.code, "2 of 2 runs finished, 0 failed" in sweep.err) == (0, True), sweep
    status = said(elsewhere, "-m", "syncline", "status", "sweep", "--results", str(results))
    assert (status.code, "2         2" in status.out) == (0, True), status
    report = said(
        elsewhere, "-m", "syncline", "report", "psp/fig2", "--results", str(results)
    )  # its runs are in the reference
    assert (report.code, "written: " in report.out) == (0, True), report


def test_real_processes_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    config, _ = compose(["runner=local"])
    check_possible(config)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(
        ConfigError, match=r"^runner=local starts real processes, which need Linux, and this is darwin; "
    ):
        check_possible(config)
    check_possible(compose([])[0])


def test_where_signals_cannot_be_blocked_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("signal.pthread_sigmask")
    with block_signals():
        assert SIGNALS
