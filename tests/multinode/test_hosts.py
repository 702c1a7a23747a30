"""Runs over three emulated hosts. A start takes seconds, so a run serves several tests."""

import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from certificates import over_tls

from benchmarks.cuts import cut_once
from benchmarks.emulated import EmulatedHosts
from benchmarks.kills import parent
from benchmarks.live_run import LiveRun, kill
from syncline.__main__ import main as syncline
from syncline.records.events import read_events

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("hosts")]

UNEVEN = ["cluster.gradient_s=[0.05]", "runner.pace=absolute"]
SMALL = ["strategy=asp", "cluster.workers=3", "max_updates=9"]
CLOCKS_APART_S = 5000  # what the monotonic clocks of two emulated hosts differ by


def test_bsp_of_hosts_with_different_clocks_restarts_when_a_disconnected_host_is_back(
    hosts: EmulatedHosts, run_on, tmp_path
):
    """All-reduce over two hosts, whose monotonic clocks are hours apart."""
    enter = tmp_path / "enter"
    enter.write_text(
        "#!/bin/sh\n"
        f"host=$1; shift; shift_s=$((${{host##*-}} * {CLOCKS_APART_S}))\n"
        'exec ip netns exec "$host" unshare --time --monotonic $shift_s --kill-child --fork -- "$@"\n'
    )
    enter.chmod(0o755)
    run = run_on(
        *("strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2", "max_updates=80", *UNEVEN),
        f"hosts=[{hosts.names[0]},{hosts.names[2]}]",
        *("runner.start=command", f"runner.start_command='{enter} {{host}}'"),
        *("runner.hang_s=2", "runner.checkpoint_every_epochs=1", "dataset.train_size=640"),
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
    """Over TLS; `make cuts` does so with all strategies that have a server, without."""
    cuts = cut_once("psp", hosts, tmp_path, *over_tls(tmp_path))
    assert len(cuts) == 2
    assert all(cut.is_survived for cut in cuts), cuts


def test_a_host_whose_worker_is_added_and_whose_agent_and_supervisor_are_killed_takes_part_again(
    hosts: EmulatedHosts, run_on, tmp_path
):
    """It has no process until then. `make kills` kills the parts of runs over several hosts at random."""
    run = run_on(
        *("strategy=asp", "cluster.workers=2", "max_time_s=600", *UNEVEN, f"hosts=[{','.join(hosts.names[:2])}]"),
        *("runner.workers_per_host=[1,1]", "runner.initial_workers=1"),
    )
    run.wait_for_snapshot(0)
    assert syncline(["grow", run.folder.name, "1", "--results", str(run.folder.parent)]) == 0
    run.wait_for_output("worker 1 joined")
    kill(parent(parent(run.pid("worker", 1))))
    run.wait_for_output("worker 1 left")
    run.until(lambda: run.output().count("worker 1 joined") == 2)
    kill(parent(run.pid("worker", 1)))
    run.until(lambda: run.output().count("worker 1 joined") == 3)
    assert "restarts" not in run.output()
    run.process.send_signal(signal.SIGINT)
    run.wait(expected=130)
    assert run.has_ended_cleanly(), run.left_over()


def test_an_agent_whose_starter_outlives_it_is_started_again_and_a_second_one_is_sent_away(tmp_path):
    """As under srun, which serves other hosts, too. The host is this one, without emulation.

    A SIGTERM that reaches the agent too, as from a batch system that preempts a job, leaves a checkpoint.
    """
    stays = tmp_path / "stays"
    stays.write_text('#!/bin/sh\necho "$@" > "$0.said"\n"$@"\nexec sleep 100\n')
    stays.chmod(0o755)
    run = LiveRun(
        tmp_path,
        *("runner=multinode", "hosts=[127.0.0.1]", "runner.start=command", f"runner.start_command={stays}"),
        *("strategy=bsp", "cluster.workers=2", "max_updates=4000", "epochs=null", *UNEVEN),
        "runner.checkpoint_every_epochs=100",
    )
    run.wait_for_snapshot(0)
    kill(parent(parent(run.pid("worker", 0))))
    run.wait_for_output("the run continues after")
    agent = parent(parent(run.pid("shard", 0)))
    assert subprocess.run(Path(f"{stays}.said").read_text().split(), timeout=60).returncode == 0
    assert parent(parent(run.pid("shard", 0))) == agent
    run.signal_all(signal.SIGTERM)
    run.wait(expected=75)
    assert len(list((run.folder / "checkpoint").iterdir())) == 1
    assert run.has_ended_cleanly(), run.left_over()


def test_a_missing_host_is_named_within_the_timeout(hosts: EmulatedHosts, run_on):
    lost = hosts.names[2]
    hosts.cut(lost)
    try:
        said = run_on(*SMALL, f"hosts=[{hosts.names[0]},{lost}]", "runner.start_timeout_s=20").wait(expected=1)
    finally:
        hosts.heal(lost)
    place = rf"{re.escape(hosts.launcher_address)}:\d+"
    assert re.search(rf"error: host {lost}: the launcher cannot be reached at {place} \(.+\)$", said, re.M)


def test_a_port_that_a_firewall_closes_is_named_with_both_hosts(hosts: EmulatedHosts, run_on):
    one, other, _ = hosts.names
    hosts.block(other, "21000-21009")
    try:
        said = run_on(
            *("strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2", "max_updates=9"),
            *(f"hosts=[{one},{other}]", "runner.ports=21000-21009", "runner.start_timeout_s=6"),
        ).wait(expected=1)
    finally:
        hosts.unblock(other)
    place = f"{hosts.addresses[1]}:21000"
    assert re.search(rf"error: host {one} cannot reach host {other} at {place} \(timed out\)$", said, re.M)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh -c 'echo no way into {host}; echo for nobody; exit 3'", r"its agent did not start: no way into \S+-\d"),
        (
            "ip netns exec {host} unshare --mount sh -c 'mount -t tmpfs none RESULTS && exec $0 $@'",
            r"/.+ is not visible here \(.+\); all hosts must share it",
        ),
    ],
    ids=["no start", "other files"],
)
def test_an_agent_that_does_not_start_or_does_not_see_the_results_is_named(command, said, run_on, tmp_path):
    command = f'runner.start_command="{command}"'.replace("RESULTS", str(tmp_path))
    printed = run_on(*SMALL, "runner.start=command", command).wait(expected=1)
    assert re.search(rf"error: host \S+: {said}$", printed, re.M)


def test_commands_are_printed_for_any_launcher_and_agents_end_when_theirs_was_killed(hosts: EmulatedHosts, run_on):
    run = run_on(*SMALL, "runner.start=print", "runner.start_command=", "runner.start_timeout_s=60")
    run.wait_for_output(f"on {hosts.names[2]}: ")
    lines = run.output().replace("\n", " ").split(f"on {hosts.names[0]}: ")[1]
    command = shlex.split(lines.split(" on ")[0])
    secret = (run.folder / "secret-agents").read_text()
    assert secret not in run.output()
    assert (run.folder / "secret-agents").stat().st_mode & 0o777 == 0o600
    agent = subprocess.Popen([*hosts.on(hosts.names[0]), *command])
    run.wait_for_output(f"host {hosts.names[0]} is connected (1 of 3)")
    assert agent.poll() is None
    run.kill_launcher()
    assert agent.wait(60) == 0
    (run.folder / "secret-agents").unlink()
