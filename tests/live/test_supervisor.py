"""The processes of a host, forked from its supervisor: which are restarted, and that none is left behind.

No run is made: a shard and workers that have said who they are wait for each other.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from leaks import wait_until

from benchmarks.live_run import is_alive, kill, parent
from runners.observer import Evaluator
from syncline.config import compose
from syncline.live.control import ControlServer, Peer
from syncline.live.handshake import make_secret
from syncline.live.messages import Hello
from syncline.live.process import Job
from syncline.live.supervisor import Ended, Supervisor
from syncline.records.writer import RecordWriter

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("supervisor")]


class Host:
    """A shard and two workers of one host, and their launcher."""

    def __init__(self, folder: Path, supervisor: Supervisor) -> None:
        self.config, _ = compose(["runner=local", "model=softmax_regression", "cluster.workers=2"])
        with RecordWriter(folder / "record", self.config.as_dict(), with_events=False) as record:
            self.folder = record.folder
        (self.folder / "log").mkdir()
        self.launcher = ControlServer("unix:", make_secret(self.folder / "secret"), None)
        self.supervisor = supervisor
        self.job = Job(
            folder=str(self.folder),
            secret="secret",
            control_address=self.launcher.address,
            cwd=str(folder),
            listen_at="unix:",
            processes=[("shard", 0), ("worker", 0), ("worker", 1)],
            num_present=2,
        )
        self.pids: dict[str, int] = {}

    def start(self) -> None:
        self.supervisor.start(self.job)
        self.pids = {str(peer): peer.hello.pid for peer in (self.connected() for _ in self.job.processes)}

    def connected(self) -> Peer:
        """The next process that connects."""
        while True:
            peer, message = self.launcher.messages.get(timeout=60)
            if isinstance(message, Hello):
                return peer

    def end(self) -> None:
        self.supervisor.kill()
        self.supervisor.wait()
        self.launcher.close()
        assert not any(map(is_alive, self.pids.values()))


@pytest.fixture
def host(tmp_path: Path, supervisor: Supervisor) -> Iterator[Host]:
    made = Host(tmp_path, supervisor)
    yield made
    made.end()


def ignored(pid: int) -> set[int]:
    """Signals that this process ignores."""
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
    return {number for number in range(1, 32) if int(mask.split()[1], 16) >> (number - 1) & 1}


@pytest.mark.core
def test_all_are_children_of_one_process_with_one_thread_in_a_session_of_its_own(host: Host) -> None:
    host.start()
    (supervisor,) = set(map(parent, host.pids.values()))
    assert supervisor == host.supervisor._process.pid
    assert len(list(Path(f"/proc/{supervisor}/task").iterdir())) == 1
    assert os.getsid(supervisor) == supervisor != os.getsid(0)
    for name, pid in host.pids.items():
        assert Path(f"/proc/{pid}/comm").read_text() == f"{name.replace(' ', '-')}\n"
        assert os.getsid(pid) == supervisor
        assert {signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP} <= ignored(pid)  # or it could not write its checkpoint
        assert not {signal.SIGINT, signal.SIGCHLD} & ignored(pid)
        assert os.readlink(f"/proc/{pid}/cwd") == host.job.cwd
        files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        own = str(host.folder / "log" / f"{name.replace(' ', '-')}.txt")
        assert files.count(own) == 2  # standard output and standard error
        sockets = [file for file in files if file.startswith("socket:")]
        assert len(sockets) == (
            2 if name == "shard 0" else 1
        )  # its control connection and its listener: none is inherited


@pytest.mark.core
def test_a_worker_has_the_environment_that_torchrun_would_set() -> None:
    processes = [("shard", 0), ("worker", 2), ("worker", 3)]
    job = Job("record", "secret", "unix:launcher", "/", processes=processes, environment={"WORLD_SIZE": "4"})
    expected = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert job.variables("worker", 3) == expected
    assert job.variables("shard", 0) == {"WORLD_SIZE": "4"}


@pytest.mark.core
def test_a_killed_worker_is_restarted_and_the_others_stay_but_a_killed_shard_ends_all(host: Host) -> None:
    host.start()
    kill(host.pids["worker 1"])
    again = host.connected()
    assert str(again) == "worker 1"
    assert again.hello.pid != host.pids["worker 1"]
    assert host.supervisor.wait(0.0) is None
    assert all(is_alive(host.pids[name]) for name in ("shard 0", "worker 0"))
    host.pids["worker 1"] = again.hello.pid

    kill(host.pids["shard 0"])
    ended = host.supervisor.wait(60)
    assert ended == Ended("shard 0", -signal.SIGKILL)
    assert ended.why == "shard 0 was killed by SIGKILL"
    assert not any(map(is_alive, host.pids.values()))


@pytest.mark.core
def test_a_process_that_fails_reports_why_and_ends_all(host: Host) -> None:
    (host.folder / "config.json").write_text("nothing: of ours\n")
    host.supervisor.start(host.job)
    ended = host.supervisor.wait(60)
    assert ended is not None
    assert ended.why.endswith("ended with exit code 1")
    assert list((host.folder / "log").glob("failure-*.json"))


def test_stopped_processes_die_with_the_supervisor_and_the_next_job_has_a_new_one(host: Host) -> None:
    host.start()
    evaluator = Evaluator(host.config, host.folder, host.supervisor)
    children = Path(f"/proc/{host.supervisor._process.pid}/task/{host.supervisor._process.pid}/children")
    assert wait_until(lambda: len(children.read_text().split()) == 4)
    pids = [int(pid) for pid in children.read_text().split()]
    assert set(host.pids.values()) < set(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    kill(host.supervisor._process.pid)
    ended = host.supervisor.wait(60)
    assert ended is not None
    assert ended.why == "the supervisor was killed by SIGKILL"
    assert wait_until(lambda: not any(map(is_alive, pids)))
    evaluator.close()
    host.start()
    assert set(host.pids.values()).isdisjoint(pids)


@pytest.mark.core
def test_a_worker_without_a_launcher_retries_with_backoff(host: Host) -> None:
    host.launcher.close()
    begun = time.monotonic()
    host.supervisor.start(replace(host.job, processes=[("worker", 0)]))
    said = host.folder / "log" / "worker-0.txt"
    assert wait_until(lambda: said.exists() and said.read_text().count("no launcher") == 4)
    assert time.monotonic() - begun > 0.1 + 0.2 + 0.4
    assert host.supervisor.wait(0.0) is None
