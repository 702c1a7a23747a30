"""Fixtures of the commands that look at plans."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operations.planned import fail, finish, interrupt, lock, lock_of_the_dead, write_plan

from runners.commands import main


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Of the plan paper/table-smoke: seeds 0 and 1 finished, 2 running, 3 failed, 4 killed, 5 left.

    Seed 9, finished, is of no plan.
    """
    results = tmp_path / "results"
    write_plan(results, "paper-table-smoke", range(6), labels=("even", "odd"))
    finish(results, 0, wall_s=10.0)
    finish(results, 1, wall_s=30.0, ended_by="diverged")
    interrupt(results, 2)
    lock(results, 2)
    fail(results, 3)
    interrupt(results, 4)
    lock_of_the_dead(results, 4)
    finish(results, 9)
    return results


@pytest.fixture
def said(results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command prints, which must succeed; on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*words, "--results", str(results)]) == code
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return call


@pytest.fixture
def as_json(said: Callable[..., str]) -> Callable[..., Any]:
    def call(*words: str, code: int = 0) -> Any:
        return json.loads(said(*words, "--json", code=code))

    return call
