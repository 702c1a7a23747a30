"""How the job of torchrun that makes a run is started and ended, with programs that stand for torchrun and ssh."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.live_run import is_alive
from runners import command_line, rank, torchrun
from runners.commands import main
from runners.failures import RunFailed
from runners.stop import StopRequested
from runners.torchrun import ENVIRONMENT, TORCHRUN, allocated_hosts, launch
from syncline.config import ConfigError, Invocation, MultinodeConfig, RunConfig, compose
from syncline.installation import script
from syncline.live.node.ranks import Place, Ranks
from syncline.records.store import STOPPED
from tests.refusals import refusal

HOSTS = ["runner=multinode", "runner.hosts=[a,b]", "cluster.workers=3"]
ODD = "scenario.compute_delay={name: exponential, mean: 0.01}"  # for a shell
SIGNALS = "SIGTERM,SIGINT,SIGQUIT,SIGUSR1"


@pytest.fixture(autouse=True)
def _heeds_a_lost_terminal() -> Iterator[None]:
    """Whatever these tests were started with."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def launched(results: Path, words: Sequence[str]) -> tuple[int, list[str]]:
    """The exit code, and what was told."""
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torchrun, "say", told.append)
        code = launch(compose(words)[0], words, results, lambda place, was_killed: pytest.fail("it began"))
    return code, told


def of_node(node: int, nproc: int, signals: str = f"{SIGNALS},SIGHUP") -> list[str]:
    """The options on this node."""
    first = ["--nnodes=2", "--master-addr=a", "--master-port=29500", f"--node-rank={node}"]
    first += ["--rdzv-conf=timeout=300" if node else "--rdzv-conf=timeout=310"]
    return [*first, f"--nproc-per-node={nproc}", *options(signals)]


def options(signals: str) -> list[str]:
    return ["--max-restarts=3", f"--signals-to-handle={signals}", "--start-method=fork", "--run-path", *script()]


# What is shown


@pytest.mark.parametrize("is_nohup", [False, True], ids=["", "nohup"])
def test_the_command_of_this_host_is_shown_and_nothing_is_started(is_nohup: bool, tmp_path: Path) -> None:
    words = ["runner=local", "cluster.workers=2", "runner.print=true", ODD]
    if is_nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    code, (line,) = launched(tmp_path, words)
    handled = SIGNALS if is_nohup else f"{SIGNALS},SIGHUP"
    assert shlex.split(line) == ["torchrun", "--standalone", "--nproc-per-node=2", *options(handled), *words]
    assert (code, list(tmp_path.iterdir())) == (0, [])


def test_the_commands_of_several_hosts_are_shown_and_nothing_is_started(tmp_path: Path) -> None:
    words = [*HOSTS, "runner.print=true", "runner.start=command", "runner.start_command=absent", ODD]
    code, told = launched(tmp_path, words)
    for node, (line, host, nproc) in enumerate(zip(told, "ab", (2, 1), strict=True)):
        where, _, command = line.partition(" && ")
        assert where == f"on {host}: cd {shlex.quote(os.getcwd())}"
        assert shlex.split(command) == ["torchrun", *of_node(node, nproc), *words]
    assert (code, list(tmp_path.iterdir())) == (0, [])


# What is started on this host

# A signal is lost neither by a process that forks nor by its child, which keeps it until it has handlers of its own,
# also if it forks meanwhile.
FORKS = """
import os, signal
from runners import rank
from runners.stop import SIGNALS
from runners.torchrun import _heed_signals_after_forks

def stop(number, frame):
    raise InterruptedError

signal.signal(signal.SIGUSR1, stop)
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGUSR1))
_heed_signals_after_forks()
rank.inherited = lambda place, was_killed: 0
try:
    if not (child := os.fork()):
        os.kill(os.getpid(), signal.SIGUSR1)
        again = os.fork()
        os._exit(0 if signal.sigpending() and set(SIGNALS) <= signal.pthread_sigmask(signal.SIG_BLOCK, []) else 1)
except InterruptedError:
    print("stopped", signal.pthread_sigmask(signal.SIG_BLOCK, []), os.wait()[1])
"""
# A process that is no rank has the signals of its parent.
OTHERS = """
import signal, subprocess, sys
from runners.torchrun import _heed_signals_after_forks

_heed_signals_after_forks()
print_blocked = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
subprocess.run([sys.executable, "-c", print_blocked], preexec_fn=lambda: None, check=True)
"""
# Ranks that were starting when the signal came end with it.
STARTS = """
import multiprocessing, os, signal
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import SignalException
from runners import torchrun
from runners.stop import StopRequested

def be_rank():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    signal.pause()

ended, waits = (multiprocessing.get_context("fork").Process(target=what) for what in (int, be_rank))

def main(arguments):
    ended.start()
    waits.start()
    os.waitpid(ended.pid, 0)  # and multiprocessing does not know, as if the signal had come then
    raise SignalException("", signal.SIGUSR1)

signal.signal(signal.SIGUSR1, signal.SIG_DFL)
run.main = main
try:
    torchrun._torchrun_here([], None)
except StopRequested as stop:
    print(stop.number == signal.SIGUSR1, waits.exitcode == -signal.SIGUSR1)
"""
# The signal comes as a function begins that torch measures: what its decorator raises is another error.
MEASURED = STARTS.replace(
    """    raise SignalException("", signal.SIGUSR1)
""",
    """    from types import SimpleNamespace
    from torch.distributed.elastic.metrics import api

    def begun():
        raise SignalException("", signal.SIGUSR1)

    api.time = SimpleNamespace(time=begun)
    api.prof(print)()
""",
)


@pytest.mark.parametrize(
    ("program", "said"),
    [(FORKS, "stopped set() 0"), (OTHERS, "set()"), (STARTS, "True True"), (MEASURED, "True True")],
    ids=["a fork", "no rank", "ranks that start", "what torch measures"],
)
def test_no_signal_is_lost_where_processes_are_forked(program: str, said: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (f"{said}\n", "")


# What is started on several hosts


class Programs:
    """Programs of a shell on the PATH; each notes its arguments, one a line, in a file of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(torchrun, "TORCHRUN", str(folder / "torchrun"))

    def add(self, name: str, *lines: str) -> None:
        notes = f'printf "%s\\n" "$@" > {self.folder}/draft.$$; mv {self.folder}/draft.$$ {self.folder}/{name}.$$.said'
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/sh", notes, *lines, ""]))
        path.chmod(0o755)

    def said(self, name: str) -> list[list[str]]:
        """The arguments of each call."""
        return sorted(path.read_text().splitlines() for path in self.folder.glob(f"{name}.*.said"))

    def pids(self, name: str) -> list[int]:
        return [int(path.name.split(".")[1]) for path in self.folder.glob(f"{name}.*.said")]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path / "bin", monkeypatch)


THERE = 'for last; do :; done; cd /; exec sh -c "$last"'  # what sshd does with a command
ON_BOTH = 'for last; do :; done; for SLURM_NODEID in 0 1; do export SLURM_NODEID; sh -c "$last" & done; wait'


@pytest.mark.parametrize("start", ["ssh", "srun", "command"])
def test_torchrun_is_started_on_each_host_in_this_folder_with_its_own_words(
    start: str, tmp_path: Path, programs: Programs
) -> None:
    programs.add("ssh", THERE)
    programs.add("srun", ON_BOTH)
    programs.add("onto", "shift; shift", 'exec "$@"')
    programs.add("torchrun", f'echo "$PWD $OMP_NUM_THREADS" > {programs.folder}/$$.where')
    own = [] if start == "command" else ["runner.start_options=[-v]"]
    command = ["runner.start_command='onto -l {host}'"] if start == "command" else []
    words = [*HOSTS, f"runner.start={start}", *own, *command, ODD, 'results="it\'s $HOME"']
    assert launched(tmp_path, words)[0] == 0
    assert programs.said("torchrun") == [[*of_node(node, nproc), *words] for node, nproc in ((0, 2), (1, 1))]
    assert {path.read_text() for path in programs.folder.glob("*.where")} == {f"{os.getcwd()} 1\n"}
    if start == "ssh":
        assert [said[-2] for said in programs.said("ssh")] == ["a", "b"]
        assert all({"BatchMode=yes", "ServerAliveInterval=5", "-v"} <= set(said) for said in programs.said("ssh"))
    elif start == "srun":
        (said,) = programs.said("srun")
        assert {"--nodes=2", "--nodelist=a,b", "-v", "--kill-on-bad-exit=0"} <= set(said)
    else:
        assert [said[:2] for said in programs.said("onto")] == [["-l", "a"], ["-l", "b"]]


def on(programs: Programs, first: str, second: str) -> list[str]:
    """Words of a run whose hosts do this in place of torchrun."""
    programs.add("onto", f'case "$1" in a) {first};; b) {second};; esac')
    return [*HOSTS, "runner.start=command", "runner.start_command='onto {host}'"]


def test_a_host_on_which_torchrun_does_not_start_ends_all_in_one_line(
    tmp_path: Path, programs: Programs, capfd: pytest.CaptureFixture[str]
) -> None:
    words = on(programs, "exec sleep 60", "echo no such network >&2; exit 3")
    with pytest.raises(RunFailed, match=r"^host b: torchrun ended with exit code 3$"):
        launched(tmp_path, words)
    assert not any(map(is_alive, programs.pids("onto")))


def test_a_first_host_on_which_torchrun_does_not_start_is_named(tmp_path: Path, programs: Programs) -> None:
    with pytest.raises(RunFailed, match=r"^host a: torchrun ended with exit code 255$"):
        launched(tmp_path, on(programs, "exit 255", "exec sleep 60"))
    assert not any(map(is_alive, programs.pids("onto")))


def test_a_program_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^runner\.start=command: not-there: No such file or directory$"):
        launched(tmp_path, [*HOSTS, "runner.start=command", "runner.start_command='not-there {host}'"])


def record_of(results: Path, words: Sequence[str]) -> Path:
    """The record of such a run; it has the attempt of a coordinator that was killed."""
    record = results / compose(words)[0].identity
    record.mkdir()
    (record / "attempt-0.json").write_text("")
    return record


def test_a_host_that_is_lost_while_the_run_is_under_way_is_started_again(
    tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torchrun, "RETRY_S", 0.0)
    lost, back = tmp_path / "lost", tmp_path / "back"
    begins = "touch RECORD/attempt-1.json"
    second = f"if [ -e {lost} ]; then echo it is back; touch {back}; exit 0; fi; {begins}; touch {lost}; exit 3"
    words = on(programs, f"until [ -e {back} ]; do sleep 0.01; done", second)
    record = record_of(tmp_path, words)
    program = programs.folder / "onto"
    program.write_text(program.read_text().replace("RECORD", str(record)))
    code, told = launched(tmp_path, words)
    assert (code, told[-1]) == (0, "host b: torchrun ended with exit code 3")
    assert "b: it is back\n" in capfd.readouterr().err


@pytest.mark.usefixtures("signals")
def test_a_stop_reaches_all_hosts_and_is_over_when_the_first_one_has_ended(tmp_path: Path, programs: Programs) -> None:
    stops, ready = "trap 'exit 75' TERM", programs.folder / "ready"
    first = f"{stops}; until [ -e {ready} ]; do sleep 0.01; done; kill -TERM $PPID; while :; do sleep 0.01; done"
    words = on(programs, first, f"{stops}; touch {ready}; while :; do sleep 0.01; done")
    (record_of(tmp_path, words) / STOPPED).write_text("x checkpointed")
    with pytest.raises(StopRequested) as stop:
        launched(tmp_path, words)
    assert (stop.value.number, stop.value.kept) == (signal.SIGTERM, "x checkpointed")
    assert not any(map(is_alive, programs.pids("onto")))


# The hosts of an allocation


def runner(*words: str) -> MultinodeConfig:
    made = compose(["runner=multinode", "cluster.workers=4", *words])[0].runner
    assert isinstance(made, MultinodeConfig)
    return made


def test_the_first_hosts_of_the_allocation_are_taken(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.add("scontrol", "echo n1; echo n2; echo n3")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    assert allocated_hosts(runner("runner.start=srun", "runner.nodes=2")) == ["n1", "n2"]
    assert programs.said("scontrol") == [["show", "hostnames", "n[1-3]"]]
    with pytest.raises(ConfigError, match=r"runner\.nodes must be at most 3, the allocation's; got 4"):
        allocated_hosts(runner("runner.start=srun", "runner.nodes=4"))
    with pytest.raises(ConfigError, match=r"runner\.nodes must say how many hosts"):
        allocated_hosts(runner("runner.start=srun"))
    with pytest.raises(ConfigError, match=r"runner\.hosts must name the hosts"):
        allocated_hosts(runner("runner.nodes=2"))
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    with pytest.raises(ConfigError, match=r"runner\.hosts must name the hosts"):
        allocated_hosts(runner("runner.start=srun", "runner.nodes=2"))


# Inside torchrun


def first_of(size: int, nodes: int = 1) -> Ranks:
    return Ranks(0, size // nodes, size, nodes, "127.0.0.1", 1, 0)


@pytest.mark.parametrize(
    ("words", "ranks", "line"),
    [
        (["-m", "seed=0,1"], first_of(4), "inside torchrun there is one run, .*, got -m seed=0,1; outside of it"),
        (["--cfg"], first_of(4), "inside torchrun there is one run, .* got --cfg; outside"),
        (["+experiment=dssp/table1"], first_of(4), "inside torchrun there is one run, of key=value words alone, got"),
        (["cluster.workers=2"], first_of(4), r"cluster\.workers=2 must have 2 ranks of torchrun .*, got 4"),
        (["sede=1"], first_of(4), "sede: unknown key"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_that_are_of_no_run_of_these_ranks_are_refused_in_one_line(
    words: list[str], ranks: Ranks, line: str
) -> None:
    assert re.search(line, refusal(ConfigError, rank.composed, words, ranks))


def test_all_ranks_of_a_node_but_its_first_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["run", "seed=1"]) == 0


@pytest.mark.parametrize(("nodes", "name"), [(1, "local"), (2, "multinode")])
def test_the_runner_is_left_out_inside_torchrun(nodes: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers of which each has a shard; torchrun says on how many nodes."""
    made: list[RunConfig] = []

    def coordinate(config: RunConfig, invocation: Invocation, place: Place, was_killed: bool) -> int:
        made.append(config)
        return 7

    monkeypatch.setattr(command_line, "coordinate", coordinate)
    begin = rank.composed(["cluster.workers=2", "seed=3"], first_of(2, nodes))
    assert begin(None, False) == 7  # type: ignore[arg-type]
    (config,) = made
    assert (config.runner.name, config.seed) == (name, 3)
    assert not isinstance(config.runner, MultinodeConfig) or config.runner.nodes == 2


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["seed=3"], "results"),
        (["results=/x", "results=/scratch/a-b_1"], "/scratch/a-b_1"),
        (["results='/x/two words'", "seed=3"], "/x/two words"),
        (["results=~/runs"], "/home/me/runs"),
        (["results=${oc.env:SCRATCH}/runs"], "/scratch/runs"),
        (["--config-file=/x/run.json", "results=/x/two words"], "/x/two words"),
    ],
)
def test_a_keeper_finds_the_record_where_its_coordinator_makes_it(
    words: list[str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SCRATCH", "/scratch")
    assert rank.folder_of_results(words) == Path(folder)


def test_what_libraries_read_is_given_to_every_host() -> None:
    assert Path(TORCHRUN).exists()
    assert ENVIRONMENT["OMP_NUM_THREADS"] == "1"
