"""Several emulated hosts, and runs on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.emulated import CannotEmulate, EmulatedHosts
from benchmarks.live_run import LiveRun


@pytest.fixture(scope="module")
def hosts() -> Iterator[EmulatedHosts]:
    """Three, with cables of 1 Gbit/s."""
    try:
        made = EmulatedHosts(3)
    except CannotEmulate as error:
        pytest.skip(f"no network namespaces here: {error}")
    with made:
        yield made


@pytest.fixture
def run_on(hosts, tmp_path):
    """(overrides) -> a run on all hosts, whose launcher is on the switch; afterwards no process of it may be left."""
    made = []

    def start(*overrides: str, results: Path = tmp_path) -> LiveRun:
        made.append(LiveRun(results, *hosts.overrides, "epochs=null", *overrides, on=hosts.on(hosts.switch)))
        return made[-1]

    yield start
    for run in made:
        if run.process.poll() is None:
            run.kill_launcher()
        assert run.has_ended_cleanly(), run.left_over()
