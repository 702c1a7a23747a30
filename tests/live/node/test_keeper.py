"""The keeper of a node: which processes it starts, starts again and kills, and when it ends.

The test is the store and the coordinator. The node has the second of two ranks, with a shard and a worker; no run is
made: its processes say who they are, and wait for the others.
"""

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import wait_until
from live.here import server
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from benchmarks.live_run import children, is_alive, kill, name_of, parent
from runners import rank
from runners.commands import exit_code_of
from syncline.config import compose
from syncline.live.node.control import ControlServer, Peer
from syncline.live.node.keeper import SIGNALS, Keeper
from syncline.live.node.process import Job, new_job_name, new_secret
from syncline.live.node.ranks import KEY, Ranks
from syncline.live.wire.control_messages import Hello
from syncline.live.wire.frames import VERSION
from syncline.live.wire.handshake import MAGIC, NONCE_BYTES, PREAMBLE, PROOF_BYTES
from syncline.records.store import ENDED, STOPPED, write_summary
from syncline.records.writer import RecordWriter

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("forkserver")]

RUN = ["runner=multinode", "runner.nodes=2", "strategy=asp", "cluster.workers=2", "cluster.shards=2"]
ENVIRONMENT = {  # as torchrun sets it on this node
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
LONG_S = 60.0  # for what takes milliseconds


def be_rank(environment: dict[str, str], words: list[str], output: Path, coordinate: Any = None) -> None:
    """What torchrun's agent starts, with this output; `coordinate`: what the coordinator of rank 0 does."""
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    rank.inherited = coordinate
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # as by a process that starts others
    raise SystemExit(exit_code_of(lambda: rank.be_rank(words), words))


def be_agent(*arguments: Any) -> None:
    """torchrun's agent: its rank is a child of this process."""
    if not os.fork():
        be_rank(*arguments)
    os.wait()


class Host:
    """The store, the record and the coordinator of a run, and the rank that has the processes of its second node."""

    def __init__(self, results: Path) -> None:
        self.words = [*RUN, f"results={results}"]
        config, _ = compose(self.words)
        with RecordWriter(results / config.identity, config.as_dict(), with_events=False) as record:
            self.folder = record.folder
        (self.folder / "log").mkdir()
        self.output = results / "output.txt"
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.ranks = Ranks(1, 1, 2, 1, "127.0.0.1", self._store.port, 0)
        self.rank: Any = None
        self.control: ControlServer | None = None
        self.pids: dict[str, int] = {}  # of all processes that have connected

    def start(
        self,
        main: Callable[..., None] = be_rank,
        words: list[str] | None = None,
        coordinate: Any = None,
        **environment: str,
    ) -> None:
        """Start the rank; arguments as of `be_rank`."""
        told = ENVIRONMENT | {"MASTER_PORT": str(self._store.port)} | environment
        self.rank = server().Process(target=main, args=(told, words or self.words, self.output, coordinate))
        self.rank.start()

    def tell(self, text: str) -> None:
        """All ranks, by the store."""
        self._store.set(KEY, text)

    def attempt(self, address: str = "") -> Job:
        """Begin an attempt, whose coordinator is at this address; empty: it is this process."""
        secret = new_secret()
        if not address:
            self.control = ControlServer("tcp:127.0.0.1:0", secret.encode(), None)
            address = self.control.address
        job = Job(str(self.folder), new_job_name(), self.words, secret, address, num_present=2)
        job.write()
        self.tell(f"{self.folder.name}/{job.name}")
        return job

    def connected(self) -> Peer:
        """The next process that connects."""
        assert self.control is not None
        while True:
            peer, message = self.control.messages.get(timeout=LONG_S)
            if isinstance(message, Hello):
                self.pids[str(peer)] = peer.hello.pid
                return peer

    def started(self) -> Job:
        """An attempt, whose processes have connected."""
        job = self.attempt()
        assert {str(self.connected()), str(self.connected())} == {"shard 1", "worker 1"}
        return job

    def fail(self) -> None:
        """The record says that the run has failed."""
        (self.folder / "log.txt").write_text("an error\n")

    def code(self) -> int:
        """The exit code of the rank, which ends by itself; its processes have ended, too."""
        self.rank.join(LONG_S)
        assert self.rank.exitcode is not None
        assert not any(map(is_alive, self.pids.values()))
        return int(self.rank.exitcode)

    def end(self) -> None:
        if self.rank is not None:
            self.rank.kill()
            self.rank.join()
        if self.control is not None:
            self.control.close()
        assert wait_until(lambda: not any(map(is_alive, self.pids.values())))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.end()


def ignored(pid: int) -> set[int]:
    """Signals that this process ignores."""
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
    return {number for number in range(1, 32) if int(mask.split()[1], 16) >> (number - 1) & 1}


@pytest.mark.core
def test_its_processes_are_its_children_in_a_session_of_its_own_and_ignore_signals(host: Host) -> None:
    host.start()
    host.started()
    keeper = host.rank.pid
    assert len(list(Path(f"/proc/{keeper}/task").iterdir())) == 1, "threads do not survive a fork"
    assert os.getsid(keeper) == keeper != os.getsid(0)
    for name, pid in host.pids.items():
        own = name.replace(" ", "-")
        assert (name_of(pid), parent(pid), os.getsid(pid)) == (own, keeper, keeper)
        assert set(SIGNALS) <= ignored(pid), "or it could not write its checkpoint"
        files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert files.count(str(host.folder / "log" / f"{own}.txt")) >= 2  # standard output and standard error


@pytest.mark.core
def test_a_killed_worker_is_started_again_for_the_same_attempt_and_the_others_stay(host: Host) -> None:
    host.start()
    host.started()
    before = dict(host.pids)
    for _ in range(2):
        kill(host.pids["worker 1"])
        assert str(host.connected()) == "worker 1"
    assert host.pids["worker 1"] != before["worker 1"]
    assert host.pids["shard 1"] == before["shard 1"]
    assert is_alive(before["shard 1"])


@pytest.mark.core
def test_a_worker_that_finds_no_coordinator_tries_again_less_and_less_often(host: Host) -> None:
    absent = ControlServer("tcp:127.0.0.1:0", b"", None)
    absent.close()
    said, begun = host.folder / "log" / "worker-1.txt", time.monotonic()
    host.start()
    host.attempt(absent.address)
    assert wait_until(lambda: said.exists() and said.read_text().count(f"the coordinator at {absent.address}: ") == 4)
    assert time.monotonic() - begun > 0.1 + 0.2 + 0.4
    assert host.rank.is_alive()


@pytest.mark.core
def test_processes_of_an_attempt_that_is_over_are_killed_also_stopped_ones_before_the_next_begins(host: Host) -> None:
    host.start()
    job = host.started()
    before, control = dict(host.pids), host.control
    for pid in before.values():
        os.kill(pid, signal.SIGSTOP)
    job.remove()
    host.started()
    assert not any(map(is_alive, before.values()))
    assert set(host.pids.values()).isdisjoint(before.values())
    assert control is not None
    control.close()


def test_a_process_that_fails_leaves_a_note_and_is_not_started_again(host: Host) -> None:
    host.start()
    host.started().remove()
    (host.folder / "config.json").write_text("nothing of ours\n")
    host.attempt()
    notes = [host.folder / "log" / f"failure-{name}.json" for name in ("shard-1", "worker-1")]
    assert wait_until(lambda: all(note.exists() for note in notes))
    assert wait_until(lambda: children(host.rank.pid) == [])
    host.pids = {}
    time.sleep(1.2)  # as long as the others wait
    assert children(host.rank.pid) == []
    host.fail()
    next(host.folder.glob("attempt-*.json")).unlink()
    assert host.code() == 0


@pytest.mark.parametrize("was_under_way", [False, True], ids=["", "under way"])
@pytest.mark.parametrize("how", ["ended", "finished", "failed"])
def test_a_rank_ends_when_the_run_is_over(how: str, was_under_way: bool, host: Host) -> None:
    host.start()
    if was_under_way:
        host.started().remove()
    else:
        host.tell(f"{host.folder.name}/attempt-none")
    if how == "ended":
        (host.folder / ENDED).write_text("")
    elif how == "finished":
        write_summary(host.folder, {})
    else:
        host.fail()
    assert host.code() == 0


def test_the_note_of_a_stopped_run_ends_the_ranks_of_that_run_alone(host: Host) -> None:
    (host.folder / STOPPED).write_text("of an earlier one")
    host.start()
    host.tell(f"{host.folder.name}/attempt-none")
    job = host.started()
    job.remove()
    assert host.code() == 0


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=str)
def test_a_rank_that_is_asked_to_stop_waits_for_its_processes_and_says_that_the_run_can_be_resumed(
    number: int, host: Host
) -> None:
    host.start()
    job = host.started()
    os.kill(host.rank.pid, number)
    os.kill(host.pids["worker 1"], signal.SIGKILL)
    assert wait_until(lambda: len(children(host.rank.pid)) == 1)
    (left,) = children(host.rank.pid)
    assert left == host.pids["shard 1"]
    (host.folder / ENDED).write_text("")  # the run may end meanwhile
    job.remove()
    assert host.code() == 75


def test_a_rank_of_a_failed_run_that_torchrun_starts_again_fails_at_once(host: Host) -> None:
    host.fail()
    host.tell(f"{host.folder.name}/attempt-none")
    host.start(TORCHELASTIC_RESTART_COUNT="1")
    assert (host.code(), host.output.read_text()) == (1, "")


def test_other_words_than_those_of_the_first_node_are_refused_in_one_line(host: Host) -> None:
    host.start(words=[*host.words, "seed=1"])
    host.attempt()
    assert host.code() == 1
    given = " ".join(host.words)
    rule = f"error: rank 1 must be started with the same words as rank 0: {given}, got {given} seed=1\n"
    assert host.output.read_text() == rule


def test_what_a_stranger_says_in_the_store_is_not_followed(host: Host) -> None:
    folder, job = host.folder, Job(str(host.folder), new_job_name(), host.words, new_secret(), "unix:there")
    job.write()
    for copy in (folder / "log", folder.parent / "another"):
        copy.mkdir(exist_ok=True)
        (copy / job.name).write_bytes((folder / job.name).read_bytes())
    (folder / f"{job.name}.draft").write_text('{"words": [')
    keeper, own = Keeper(host.ranks, folder.parent, host.words), folder.name
    for said in (
        *("", "/", "\xff", "attempt-", "\n" * 1000, "\0/attempt-\0", f"{own}/attempt-\0"),
        *(f"{own}/attempt-{'0' * 300}.json", f"{'x' * 300}/{job.name}", f"{own}/config.json"),
        *(f"../{folder.parent.name}/{own}/{job.name}", f"{own}/log/{job.name}", f"{own}/../{own}/{job.name}"),
        *(f"./{job.name}", f"../{job.name}", f"/{job.name}", f"{own}/{job.name}.draft"),
        *(f"{own}/{new_job_name()}", f"absent/{job.name}", f"{host.output.name}/{job.name}"),
    ):
        host.tell(said)
        keeper._look(0.0)
        assert keeper._job is None, said
        assert not keeper._is_over, said
    host.tell(f"{own}/{job.name}")
    keeper._look(0.0)
    assert keeper._job == job
    job.remove()
    host.tell(f"another/{job.name}")
    keeper._look(0.0)
    assert keeper._job is None, "a rank stays with its run"


def test_a_stranger_at_the_coordinators_address_learns_no_secret_and_is_not_believed(host: Host) -> None:
    heard = b""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(LONG_S)
        job = host.attempt(f"tcp:127.0.0.1:{stranger.getsockname()[1]}")
        host.start()
        for _ in range(3):  # two processes: one at least has tried again
            with stranger.accept()[0] as sock:
                sock.settimeout(LONG_S)
                sock.sendall(PREAMBLE.pack(MAGIC, VERSION, secrets.token_bytes(NONCE_BYTES)))
                while len(heard) % (PREAMBLE.size + PROOF_BYTES) or not heard:
                    heard += sock.recv(1000)
                sock.sendall(bytes(PROOF_BYTES))
                heard += sock.recv(1000)
    assert len(heard) == 3 * (PREAMBLE.size + PROOF_BYTES)
    assert job.secret.encode() not in heard
    assert bytes.fromhex(job.secret) not in heard
    logs = [host.folder / "log" / f"{name}.txt" for name in ("shard-1", "worker-1")]
    assert any("the server does not know the run's secret" in log.read_text() for log in logs)
    assert not list((host.folder / "log").glob("failure-*"))
    assert host.rank.is_alive()


def test_a_rank_and_its_processes_die_with_its_agent_whatever_their_state(host: Host) -> None:
    host.start(be_agent)
    host.started()
    (keeper,) = children(host.rank.pid)
    assert set(children(keeper)) == set(host.pids.values())
    for pid in (keeper, *host.pids.values()):
        os.kill(pid, signal.SIGSTOP)
    kill(host.rank.pid)
    assert wait_until(lambda: not any(map(is_alive, (keeper, *host.pids.values()))))


class Coordinator:
    """Says in a file that it has been started, and whether one was killed before; then waits to be asked to stop."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, place: object, was_killed: bool) -> int:
        self.path.write_text(str(was_killed))
        while True:
            signal.pause()


def test_the_first_node_starts_its_coordinator_again_passes_signals_on_and_ends_with_it(
    host: Host, tmp_path: Path
) -> None:
    said = tmp_path / "said.txt"
    host.start(coordinate=Coordinator(said), RANK="0")
    assert wait_until(lambda: said.exists() and said.read_text() == "False")
    both = {"coordinator", "evaluator"}
    assert wait_until(lambda: {name_of(pid) for pid in children(host.rank.pid)} == both)  # a fork has its name later
    names = {name_of(pid): pid for pid in children(host.rank.pid)}
    kill(names["coordinator"])
    assert wait_until(lambda: said.read_text() == "True")
    os.kill(host.rank.pid, signal.SIGUSR1)
    assert host.code() == 75
    assert not is_alive(names["evaluator"])


def be_rank_asked_to_stop(*arguments: Any) -> None:
    """A rank to which a signal came before it had handlers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.kill(os.getpid(), signal.SIGUSR1)
    be_rank(*arguments)


def test_the_first_node_starts_no_coordinator_once_it_is_asked_to_stop(host: Host, tmp_path: Path) -> None:
    host.start(be_rank_asked_to_stop, coordinate=Coordinator(tmp_path / "said.txt"), RANK="0")
    assert host.code() == 75
    assert not (tmp_path / "said.txt").exists()
