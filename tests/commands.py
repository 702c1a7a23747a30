"""For tests of the command line: how to run it, and how to make records without it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.one import run_one
from syncline.config import RunConfig, compose

ROOT = Path(__file__).parents[1]
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


def made(results: Path, *words: str) -> Path:
    """The record of one run, made in this process."""
    config, _ = compose(words)
    run_one(config, results, lambda progress: None)
    return results / config.identity


def record_of(results: Path, *words: str) -> Path:
    return results / compose(words)[0].identity


def without_wall_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in ("wall_s", "computed_in_vain")} for row in rows]


def one_error_line(said: Said) -> str:
    assert said.code == 1, said
    assert said.out == "", said
    (line,) = said.err.splitlines()
    assert line.startswith("error: "), said
    return line


@dataclass(frozen=True)
class Default:
    results: Path
    record: Path
    config: RunConfig
    said: Said


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)
