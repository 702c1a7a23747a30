"""Several emulated hosts, and runs on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from leaks import wait_until

from benchmarks.emulated import CannotEmulate, EmulatedHosts
from benchmarks.live_run import LiveRun, kill


@pytest.fixture(scope="module")
def all_hosts() -> Iterator[EmulatedHosts]:
    """Three, with cables of 1 Gbit/s."""
    try:
        made = EmulatedHosts(3)
    except CannotEmulate as error:
        pytest.skip(f"no network namespaces here: {error}")
    with made:
        yield made


@pytest.fixture
def hosts(all_hosts) -> Iterator[EmulatedHosts]:
    """Afterwards no process may be left on any."""
    yield all_hosts
    left = all_hosts.processes
    is_empty = wait_until(lambda: left() == [])
    for pid in left():
        kill(pid)
    assert is_empty, "processes are left"


@pytest.fixture
def run_on(hosts, tmp_path):
    """(overrides) -> a run on all hosts, whose launcher is on the switch."""
    made = []

    def start(*overrides: str, results: Path = tmp_path / "results") -> LiveRun:
        made.append(LiveRun(results, *hosts.overrides, "epochs=null", *overrides, on=hosts.on(hosts.switch)))
        return made[-1]

    yield start
    for run in made:
        if run.process.poll() is None:
            run.kill_launcher()
