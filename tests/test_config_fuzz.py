"""Malformed and extreme command lines: a part of `python -m benchmarks.fuzz_configs`, and that it detects errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from composing import composed

from benchmarks import fuzz_configs
from benchmarks.fuzz_configs import (
    ENDED,
    NO_KEY,
    NONSENSE,
    NOTHING_ALLOWED,
    REFUSED,
    SEVERAL_LINES,
    TRACEBACK,
    all_keys,
    drawn,
    judged,
    refusal,
    systematic,
    unnoticed,
    untrue,
)
from runners.one import run_one
from syncline.config import ConfigError


@pytest.mark.processes
def test_each_is_refused_in_one_line_or_its_run_ends() -> None:
    words = ["--configs", "100", "--seed", "1", "--processes", "2"]
    done = subprocess.run([sys.executable, "-m", "benchmarks.fuzz_configs", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {
        kind: int(line.split()[0]) for line in done.stdout.splitlines() for kind in (REFUSED, ENDED) if kind in line
    }
    assert sum(counts.values()) == 100
    assert min(counts.values()) > 0


def test_the_same_seed_draws_the_same_and_every_key_is_among_them() -> None:
    assert drawn(60, 3) == drawn(60, 3) != drawn(60, 4)
    keys = {key for _, key in all_keys()}
    assert {"seed", "strategy.r_max", "strategy.k_cap", "cluster.network.latency_s", "optimizer.schedule.factor"} < keys
    assert {words[-1].partition("=")[0] for words in systematic()} == keys


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("batch_size must be >= 1, got 0", REFUSED),
        ("batch_size is odd", NOTHING_ALLOWED),
        ("it must be >= 1", NO_KEY),
        ("batch_size must be\n>= 1", SEVERAL_LINES),
    ],
)
def test_a_refusal_is_one_line_with_a_key_and_what_is_allowed(line: str, kind: str) -> None:
    assert refusal(("batch_size=0",), ["batch_size=0"], line).kind == kind


def test_an_unexpected_error_is_a_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: Any) -> None:
        int("what a library says of its argument")

    assert judged(("seed=-1",), tmp_path).kind == REFUSED
    monkeypatch.setattr(fuzz_configs, "compose", broken)
    monkeypatch.setattr(fuzz_configs, "is_own_error", lambda error: isinstance(error, ConfigError))
    assert judged(("seed=1",), tmp_path).kind == TRACEBACK


def test_a_wrong_record_is_detected(tmp_path: Path) -> None:
    config, _ = composed("max_updates=2", "gradients=false")
    summary = run_one(config, tmp_path, lambda progress: None)
    folder = tmp_path / config.identity
    assert untrue(config, summary, folder) == ""
    assert "bsp" in untrue(config, summary | {"strategy": "bsp"}, folder)
    assert "finite" in untrue(config, summary | {"time_s": float("inf")}, folder)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace('"name": "dssp"', '"name": "bsp"'))
    assert "strategy=bsp" in untrue(config, summary, folder)


def test_accepted_nonsense_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, _ = composed()
    assert unnoticed(["strategy=dssp"], config) == ""
    assert unnoticed(["strategy=bsp"], config) == "strategy=bsp is dssp"
    monkeypatch.setattr(fuzz_configs, "compose", lambda words: composed())
    assert judged(("strategy=bsp",), tmp_path).kind == NONSENSE
