"""Shared by all tests: the tiers' markers, Hypothesis's profiles, signals.

`make test` runs what has no marker of a tier, and of the others what is marked `core`; `make test-all` runs everything.
"""

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from examples import CI
from hypothesis import HealthCheck, settings

from syncline.config.folders import VARIABLE

# Fixed examples, so that failures are reproducible; no deadline, since CI machines are shared. A test sets its own
# number of examples by `examples.scaled`, which follows the profile.
PROFILES = {"quick": CI // 3, "ci": CI, "thorough": 1000}
for name, max_examples in PROFILES.items():
    settings.register_profile(
        name,
        derandomize=name != "thorough",
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
settings.load_profile("quick")

# Sums are in one order, and tests share the cores; torch, here and in the processes that tests start, reads it later.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# To rewrite assertions is half of the work of collecting. The result is kept, also where Python writes no byte code.
WRITES_NONE = sys.dont_write_bytecode
sys.dont_write_bytecode = False

# The longest first, so that none of them runs alone at the end.
TIERS = ("papers", "system", "processes", "statistical", "slow")


@pytest.fixture(autouse=True)
def _no_folders_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has none, and what a command adds to it ends with its test."""
    monkeypatch.setenv(VARIABLE, "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-traces", action="store_true", help="write tests/traces/*.txt instead of comparing")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins at another folder: the assertions that it rewrites there are read by the others."""
    report = yield
    if collector.path == Path(__file__).parent and "PYTEST_XDIST_WORKER" in os.environ:
        worker, count = os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"), os.environ["PYTEST_XDIST_WORKER_COUNT"]
        begin = len(report.result) * int(worker) // int(count)
        report.result = [*report.result[begin:], *report.result[:begin]]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (_tier(item), item.path))  # the same order in all workers


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = WRITES_NONE  # tests import parts of users, beside which nothing is to be written


def _tier(item: pytest.Item) -> int:
    return next((rank for rank, name in enumerate(TIERS) if item.get_closest_marker(name)), len(TIERS))
