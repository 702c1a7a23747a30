"""A real Slurm of several nodes on this machine, in a folder of its own: nothing outside it is changed."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.live_run import parent

DAEMONS = ("munged", "slurmctld", "slurmd")
NODE_LOST_S = 6  # a node that is silent for this long is down

CONF = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={base}/munge/s,cred_expire=5
SlurmctldPort={port}
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool.%n
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
JobRequeue=1
KillWait=20
SlurmctldTimeout=30
SlurmdTimeout={node_lost_s}
InactiveLimit=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
"""


@dataclass(frozen=True)
class Slurm:
    base: Path
    conf: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def states(self) -> dict[str, str]:
        """task -> its state, for unfinished tasks."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def wait_until_over(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while states := self.states():
            assert time.monotonic() < ends, states
            time.sleep(0.2)

    def node_of(self, task: str) -> str:
        return self.ask("squeue", "--noheader", f"--jobs={task}", "--format=%N").strip()

    def start_node(self, name: str) -> None:
        self.ask("slurmd", "-N", name, "-f", str(self.conf))

    def wait_for_idle(self, num_nodes: int) -> None:
        """Until all nodes are up and idle."""
        ends = time.monotonic() + 60
        while len(self.ask("sinfo", "--noheader", "-N", "-t", "idle", "-o", "%N").split()) < num_nodes:
            assert time.monotonic() < ends, (self.base / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.1)

    def kill_node(self, name: str) -> None:
        """As if its machine lost power: its daemon and all its processes end at once."""
        pids = [int((self.base / f"slurmd.{name}.pid").read_text())]
        # The environment of a job's programs names their node; their keepers are their ancestors.
        for pid in _processes():
            with suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                mine = f"SLURM_CONF={self.conf}".encode()
                if f"SLURMD_NODENAME={name}".encode() in environment and mine in environment:
                    pids += [pid, parent(pid)]
        for pid in dict.fromkeys(pids):
            if pid > 1:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def skip_without_slurm() -> None:
    missing = [daemon for daemon in DAEMONS if shutil.which(daemon) is None]
    if missing:
        pytest.skip(f"no Slurm on this machine: {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)")
    if os.getuid() != 0:
        pytest.skip("the daemons of Slurm are started by root")


@contextmanager
def slurm(base: Path, num_nodes: int) -> Iterator[Slurm]:
    """A running cluster; all nodes are idle at first."""
    munge = base / "munge"
    for folder in (munge, base / "state", *(base / f"spool.node{node}" for node in range(1, num_nodes + 1))):
        folder.mkdir(parents=True, mode=0o755)
    for folder in (base, *base.parents):  # munged requires that others cannot change the path to its socket
        if folder == Path("/tmp"):
            break
        folder.chmod(0o755)
    key = munge / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    port = _free_ports(num_nodes + 1)
    host = socket.gethostname().partition(".")[0]
    conf = base / "slurm.conf"
    lines = [CONF.format(host=host, base=base, port=port[0], node_lost_s=NODE_LOST_S)]
    lines += [
        f"NodeName=node{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port[node]} CPUs=4 RealMemory=4000"
        for node in range(1, num_nodes + 1)
    ]
    lines += [f"PartitionName=debug Nodes=node[1-{num_nodes}] Default=YES MaxTime=INFINITE State=UP"]
    conf.write_text("\n".join(lines) + "\n")
    (base / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    lab = Slurm(base, conf)
    munge_files = [f"--{kind}-file={munge}/{kind}" for kind in ("pid", "log", "seed")]
    try:
        lab.ask("munged", f"--key-file={key}", f"--socket={munge}/s", *munge_files)
        lab.ask("slurmctld", "-c", "-f", str(conf))
        for node in range(1, num_nodes + 1):
            lab.start_node(f"node{node}")
        lab.wait_for_idle(num_nodes)
        yield lab
    finally:
        with suppress(subprocess.SubprocessError):
            lab.ask("scancel", "--signal=KILL", "--user=root")
            lab.wait_until_over(20)
        for file in (*base.glob("slurmd.*.pid"), base / "slurmctld.pid", munge / "pid"):
            _end(file)


def _end(file: Path) -> None:
    with suppress(OSError, ValueError):
        pid = int(file.read_text())
        os.kill(pid, signal.SIGTERM)
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
