"""Runs over emulated hosts: as few as can show it, since a start on each takes seconds of computing."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from leaks import wait_until

from benchmarks.cuts import cut_once, seen
from benchmarks.emulated import EmulatedHosts
from benchmarks.live_run import ROOT, TIMEOUT_S, kill
from syncline.records.events import read_events

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("hosts")]

UNEVEN = ["cluster.gradient_s=[0.05]", "runner.pace=absolute"]
SMALL = ["strategy=asp", "cluster.workers=2", "max_updates=9"]
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
HANDLED = "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
CLOCKS_APART_S = 5000  # what the monotonic clocks of two emulated hosts differ by


def two_of(names: Sequence[str]) -> str:
    """The override for a run on the first and the last of the hosts."""
    return f"hosts=[{names[0]},{names[-1]}]"


def by_script(folder: Path, script: str) -> str:
    """The override that has torchrun started by this script, with $host, and torchrun's command as its arguments."""
    path = folder / "enter"
    path.write_text(f"#!/bin/sh\nhost=$1; shift\n{script}")
    path.chmod(0o755)
    return f"runner.start_command='{path} {{host}}'"


def test_bsp_of_hosts_with_different_clocks_restarts_when_a_disconnected_host_is_back(
    hosts: EmulatedHosts, run_on, tmp_path
):
    """All-reduce over two hosts, whose monotonic clocks are hours apart."""
    enter = by_script(
        tmp_path,
        f"shift_s=$((${{host##*-}} * {CLOCKS_APART_S}))\n"
        'exec ip netns exec "$host" unshare --time --monotonic $shift_s --kill-child --fork -- "$@"\n',
    )
    run = run_on(
        *("strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2", "max_updates=80", *UNEVEN),
        *(two_of(hosts.names), enter, "runner.hang_s=2", "runner.checkpoint_every_epochs=1", "dataset.train_size=640"),
        results=tmp_path / "results",
    )
    run.wait_for_snapshot(2)
    hosts.cut(hosts.names[2])
    run.wait_for_output("restarts from its last checkpoint")
    hosts.heal(hosts.names[2])
    said = run.wait()
    summary = run.summary()
    assert (summary["updates"], summary["restarts"]) == (80, 1), said
    log = read_events(run.folder / "events.arrow").to_pandas()
    assert log[log.kind == "applied"].groupby("version").size().tolist() == [2] * 80
    # One clock for all: no two members end a step at times further apart than a message and what clocks are known to.
    ends = log[log.kind == "granted"].groupby("version")["at"]
    assert (ends.max() - ends.min()).median() < CLOCKS_APART_S / 10
    assert 0 < summary["clock_error_s"] < CLOCKS_APART_S / 10
    assert 0.05 * 80 < summary["time_s"] < CLOCKS_APART_S / 10


def test_psp_on_two_shards_continues_without_a_host_that_is_disconnected_until_it_is_back(
    hosts: EmulatedHosts, tmp_path
):
    """`python -m benchmarks cuts` does so with all strategies that have a server."""
    cuts = cut_once("psp", hosts, tmp_path)
    assert len(cuts) == 2
    assert all(cut.is_survived for cut in cuts), cuts


class ByHand:
    """torchrun on each host, as somebody types it there; `words` make the run."""

    def __init__(self, hosts: EmulatedHosts, results: Path, *words: str) -> None:
        self._hosts, self._results, self._words = hosts, results, words
        self.folder = results  # of the record, once there is one
        self._log = (results / "output.txt").open("w")
        self.nodes = [self._start(number) for number in range(2)]

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        place = [f"--master-addr={self._hosts.addresses[0]}", "--master-port=29400", f"--node-rank={number}"]
        options = ["--nnodes=2", *place, "--nproc-per-node=1", "--max-restarts=3", HANDLED, "--start-method=fork"]
        command = [*self._hosts.on(self._hosts.names[number]), TORCHRUN, *options, "--run-path", "run.py"]
        words = [*self._words, f"results={self._results}"]
        return subprocess.Popen([*command, *words], cwd=ROOT, stdout=self._log, stderr=self._log)

    def kill(self, number: int) -> None:
        """All processes of this host."""
        listed = subprocess.run(["ip", "netns", "pids", self._hosts.names[number]], capture_output=True, text=True)
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):  # it has ended with its parent
                kill(int(pid))
        self.nodes[number].wait()

    def start_again(self, number: int) -> None:
        self.nodes[number] = self._start(number)

    def output(self) -> str:
        return Path(self._log.name).read_text()

    def wait_for_output(self, words: str, count: int = 1) -> None:
        self.until(lambda: self.output().count(words) >= count)

    def until(self, condition) -> None:
        ends = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < ends, self.output()
            time.sleep(0.02)

    def end(self) -> None:
        for node in self.nodes:
            node.kill()
            node.wait()
        self._log.close()


@pytest.fixture
def by_hand(hosts: EmulatedHosts, tmp_path):
    made = []

    def start(*words: str) -> ByHand:
        (tmp_path / "results").mkdir()
        made.append(ByHand(hosts, tmp_path / "results", *words))
        return made[-1]

    yield start
    for job in made:
        job.end()


def test_a_node_of_torchrun_by_hand_that_is_killed_and_started_again_joins_a_run_that_went_on(by_hand, tmp_path):
    job = by_hand("strategy=asp", "cluster.workers=2", "max_time_s=600", "epochs=null", *UNEVEN)
    snapshots = tmp_path / "results"
    job.until(lambda: list(snapshots.glob("*/snapshots/2.0-0.safetensors")))
    job.kill(1)
    job.wait_for_output("worker 1 left")
    time.sleep(1.0)
    job.start_again(1)
    job.wait_for_output("worker 1 joined")
    time.sleep(1.0)
    job.nodes[0].send_signal(signal.SIGUSR1)  # which leaves time for a checkpoint
    codes = [node.wait(TIMEOUT_S) for node in job.nodes]
    assert "restarts" not in job.output()
    (record,) = snapshots.glob("asp-*")
    assert f"interrupted; {record.name} checkpointed; " in job.output()
    assert seen(record / "events-0.arrow", lost=1).is_survived
    assert codes[1] == 0, job.output()
    assert codes[0] != 0


@pytest.fixture
def ssh_options(hosts: EmulatedHosts, tmp_path) -> Iterator[list[str]]:
    """Of ssh, into an sshd on each host."""
    if SSHD is None:
        pytest.skip("no sshd on this machine (Debian: apt-get install openssh-server)")
    key, conf = tmp_path / "key", tmp_path / "sshd.conf"
    for path in (key, tmp_path / "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    conf.write_text(
        f"HostKey {tmp_path}/host\nAuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin yes\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    servers = [subprocess.Popen([*hosts.on(name), SSHD, "-D", "-f", conf]) for name in hosts.names]
    known = f"-oUserKnownHostsFile={tmp_path}/known"
    yield ["-i", str(key), "-oStrictHostKeyChecking=accept-new", known]
    for server in servers:
        server.kill()
        server.wait()


def test_a_run_by_ssh_is_checkpointed_by_ctrl_c_leaves_nothing_and_finishes_by_the_same_command(
    hosts: EmulatedHosts, run_on, ssh_options
):
    words = ["strategy=asp", "cluster.workers=2", two_of(hosts.addresses), *UNEVEN]
    words += ["runner.start=ssh", "runner.start_command=", f"runner.start_options={json.dumps(ssh_options)}"]
    run = run_on(*words, "max_updates=200")
    daemons = 3
    run.wait_for_snapshot(2)
    run.process.send_signal(signal.SIGINT)
    said = run.wait(expected=130)
    assert re.search(r"interrupted; \S+ checkpointed; ", said), said
    assert wait_until(lambda: len(hosts.processes()) == daemons), "something is left on a host"
    assert run.has_ended_cleanly(), run.left_over()
    again = run_on(*words, "max_updates=200")
    said = again.wait()
    assert "the run continues from its last checkpoint" in said
    assert again.summary()["updates"] == 200
    assert wait_until(lambda: len(hosts.processes()) == daemons), "something is left on a host"


def test_nothing_is_left_on_any_host_when_the_launcher_is_killed(hosts: EmulatedHosts, run_on):
    run = run_on("strategy=asp", "cluster.workers=2", two_of(hosts.names), "max_time_s=600", *UNEVEN)
    run.wait_for_snapshot(1)
    run.kill_launcher()
    assert wait_until(lambda: hosts.processes() == [])
    assert run.has_ended_cleanly(), run.left_over()


def test_a_missing_host_is_named_within_the_timeout(hosts: EmulatedHosts, run_on):
    lost = hosts.names[2]
    hosts.cut(lost)
    try:
        said = run_on(*SMALL, two_of(hosts.names), "runner.start_timeout_s=20").wait(expected=1)
    finally:
        hosts.heal(lost)
    assert re.search(rf"^error: host {lost}: .+$", said, re.M), said


def test_a_host_that_does_not_see_the_results_is_named(hosts: EmulatedHosts, run_on, tmp_path):
    last, results = hosts.names[2], tmp_path / "results"
    enter = by_script(
        tmp_path,
        f"[ $host = {last} ] && hide='mount -t tmpfs none {results};'\n"
        'exec ip netns exec "$host" unshare --mount sh -c "$hide"\' exec "$0" "$@"\' "$@"\n',
    )
    said = run_on(*SMALL, two_of(hosts.names), enter, "runner.start_timeout_s=30").wait(expected=1)
    assert re.search(rf"^(error: host {last}|{last}: error): .*{results}", said, re.M), said
