"""Options of the runners with their hosts, of the launchers that start them, and of the trackers."""

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import ClassVar

from syncline.checks import Checked, ConfigError, check, check_numbers, one_of, ranged

TRANSPORTS = ("auto", "unix", "tcp")
# relative: a worker is slowed down by the ratio of its gradient_s to the smallest; absolute: a gradient takes
# gradient_s, if the machine is fast enough.
PACES = ("relative", "absolute")
# How torchrun is started on each host; command: by start_command.
STARTS = ("ssh", "srun", "command")
# workers: shards are spread over the ranks of the workers; own: each has a rank of its own, the first ones.
SHARD_PLACES = ("workers", "own")

EARLY_S = 60  # by which Slurm's signal before a time limit may come too early


@dataclass(frozen=True)
class SimulateConfig(Checked):
    """Virtual time."""

    name: str = "simulate"
    events: bool = True  # write events.arrow
    parameters: bool = False  # write parameters-<shard>.safetensors at the end
    checkpoint_every_s: float = ranged(300.0, "> 0")  # wall seconds; a shorter run writes one only if it is stopped
    workers_at_once: int | None = ranged(None, ">= 1")  # processes that compute its gradients; None: one a free core

    time_kind: ClassVar[str] = "virtual"
    _where = "runner"


@dataclass(frozen=True)
class LiveConfig(Checked):
    """Options of all runs of real processes."""

    name: str = ""
    print: bool = False  # show torchrun's command, and start nothing
    events: bool = True  # write events.arrow
    pace: str = one_of("relative", PACES)  # how the cluster's gradient_s is emulated
    evaluate: str = one_of("after", ("after", "during"))  # when snapshots are evaluated
    initial_workers: int | None = None  # started with the run, >= 1: `syncline grow` starts more; None: all
    checkpoint_every_epochs: float = ranged(1.0, "> 0")
    hang_s: float = ranged(30.0, "> 0")  # of silence, after which a worker is reported
    leave_s: float = ranged(300.0, "> 0")  # of silence, after which a worker is treated as gone
    start_timeout_s: float = ranged(300.0, "> 0")  # for all processes to connect
    max_restarts: int = ranged(3, ">= 0")  # of the whole run from a checkpoint, and of a host's ranks by torchrun

    time_kind: ClassVar[str] = "wall"
    _where = "runner"


@dataclass(frozen=True)
class LocalConfig(LiveConfig):
    """Real processes on this machine."""

    name: str = "local"
    transport: str = one_of("auto", TRANSPORTS)  # auto: unix where available


@dataclass(frozen=True)
class MultinodeConfig(LiveConfig):
    """Real processes on several hosts, which have the results and the code at the same paths."""

    name: str = "multinode"
    dead_s: float = ranged(4.0, "> 0")  # without an answer, after which a host is treated as lost
    hosts: list[str] = field(default_factory=list)  # names or addresses; none: those of the Slurm allocation
    nodes: int | None = ranged(None, "in 1 .. 10,000")  # number of hosts; None: that of `hosts`, or of torchrun's nodes
    # ranks: one number for all, or one a host; none: evenly
    nproc_per_node: list[int] = field(default_factory=list, metadata={"range": "in 1 .. 100,000"})
    shards_on: str = one_of("workers", SHARD_PLACES)
    start: str = one_of("ssh", STARTS)
    start_command: str = ""  # of start=command: precedes torchrun's command; {host} is replaced
    start_options: list[str] = field(default_factory=list)  # further options of ssh or srun
    master_addr: str = ""  # of the first host, for torchrun; empty: its name among `hosts`
    master_port: int = ranged(29500, "in 1 .. 65535")  # of torchrun's store there
    interface: str = ""  # of the hosts: a name (eth0) or a network (10.0.0.0/16); empty: towards the first host
    ports: str = ""  # of all listening sockets but those of torchrun, gloo and NCCL: LOW-HIGH; empty: any

    def __post_init__(self) -> None:
        super().__post_init__()
        check(len(set(self.hosts)) == len(self.hosts), "runner.hosts must differ", self.hosts)
        odd = [host for host in self.hosts if not host or host.startswith("-") or set(host) & set(" ,;|&$\t\n\"'")]
        check(not odd, "runner.hosts must be names or addresses", odd)
        if self.hosts and self.nodes is None:
            object.__setattr__(self, "nodes", len(self.hosts))
        rule = f"runner.nodes must be {len(self.hosts)}, as many as runner.hosts, or null"
        check(not self.hosts or self.nodes == len(self.hosts), rule, self.nodes)
        fits = (self.start == "command") == bool(self.start_command)
        given = f"{self.start_command!r} with start={self.start}"
        check(fits, "runner.start_command goes with start=command", given)
        fits = not self.start_options or self.start in ("ssh", "srun")
        check(fits, "runner.start_options must be empty unless start is ssh or srun", self.start_options)
        counts = self.nproc_per_node
        rule = f"runner.nproc_per_node must hold one number, {self.nodes} or none"
        check(self.nodes is None or len(counts) in (0, 1, self.nodes), rule, counts)
        self._check_network()

    def ranks(self, num_ranks: int) -> list[int]:
        """Ranks of each host. Raises ConfigError: they do not come to `num_ranks`."""
        assert self.nodes is not None
        counts = self.nproc_per_node
        if not counts:
            rule = f"runner.hosts must be at most {num_ranks}, a rank each"
            check(self.nodes <= num_ranks, rule, self.nodes)
            return [num_ranks // self.nodes + (host < num_ranks % self.nodes) for host in range(self.nodes)]
        counts = counts * self.nodes if len(counts) == 1 else counts
        check(sum(counts) == num_ranks, f"runner.nproc_per_node must come to {num_ranks} ranks", counts)
        return list(counts)

    def _check_network(self) -> None:
        low, dash, high = self.ports.partition("-")
        is_range = dash and low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) <= 65535
        check(not self.ports or bool(is_range), "runner.ports must be LOW-HIGH in 1024 .. 65535 or empty", self.ports)
        try:
            if "/" in self.interface:
                IPv4Network(self.interface)
        except ValueError as error:
            rule = "runner.interface must be a name or an IPv4 network such as 10.0.0.0/16"
            raise ConfigError(f"{rule}, got {self.interface!r} ({error})") from None


@dataclass(frozen=True)
class ReplayConfig:
    """A run of real processes, recomputed from its event log."""

    name: str = "replay"
    source: str = ""  # identity of the run

    events: ClassVar[bool] = False  # the log is that of the source
    time_kind: ClassVar[str] = "wall"


Runner = LocalConfig | MultinodeConfig | ReplayConfig | SimulateConfig
RUNNERS: dict[str, type[Runner]] = {
    "local": LocalConfig,
    "multinode": MultinodeConfig,
    "replay": ReplayConfig,
    "simulate": SimulateConfig,
}


@dataclass(frozen=True)
class HereConfig:
    """This machine's cores. A launcher starts the runs of a plan; it is not part of a run's identity."""

    name: str = "here"


@dataclass(frozen=True)
class SlurmConfig(Checked):
    """A Slurm array job, submitted immediately; None leaves an option to the cluster's default."""

    name: str = "slurm"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str = "1:00:00"  # of one task, in Slurm's format
    nodes: int = ranged(1, ">= 1")  # of one task; more only for runs of several hosts
    cpus: int = ranged(1, ">= 1")  # of one node; for real processes, one a worker
    memory: str | None = None  # of one node: 8G
    gpus: int = ranged(0, ">= 0")  # of one node
    max_parallel: int | None = ranged(None, ">= 1")  # tasks at a time
    runs_per_task: int = ranged(1, ">= 1")  # at a time as many as cores
    signal_delay_s: int = ranged(120, ">= 1")  # before the time limit, a task is signalled to write its checkpoint
    submit: bool = True  # False: write the script and say how to submit it
    setup: list[str] = field(default_factory=list)  # shell lines before the run: module load ...
    extra: list[str] = field(default_factory=list)  # further options of sbatch: --gres=gpu:a100:1, --exclude=...

    _where = "launcher"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, self._where)
        options = [word for word in self.extra if not word.startswith("-")]
        check(not options, "launcher.extra must hold options of sbatch, which begin with -", options)
        for key in ("partition", "account", "qos", "time", "memory"):
            value = str(getattr(self, key))
            check(not set(value) & set(" \n\t'\""), f"launcher.{key} must be one word", repr(value))
        time_s, least_s = slurm_time_s(self.time), self.signal_delay_s + EARLY_S
        rule = f"launcher.time must be at least launcher.signal_delay_s + {EARLY_S} = {least_s} s, or a task is stopped"
        check(time_s is None or time_s >= least_s, f"{rule} as soon as it begins", self.time)


def slurm_time_s(time: str) -> int | None:
    """Seconds of a time limit as sbatch reads it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None: none, or another text."""
    if not re.fullmatch(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}", time):
        return None
    days, _, rest = time.rpartition("-")
    numbers = list(map(int, rest.split(":")))
    if days or len(numbers) == 3:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    else:
        hours, minutes, seconds = 0, *(*numbers, 0)[:2]
    return (((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) or None  # 0: no limit


Launcher = HereConfig | SlurmConfig
LAUNCHERS: dict[str, type[Launcher]] = {"here": HereConfig, "slurm": SlurmConfig}


@dataclass(frozen=True)
class NoTrackerConfig:
    name: str = "none"


@dataclass(frozen=True)
class WandbConfig(Checked):
    """Weights & Biases."""

    name: str = "wandb"
    project: str = "syncline"
    mode: str = one_of("offline", ("offline", "online"))
    group: str = ""  # of runs; empty: one for all that differ in their seed only
    tags: tuple[str, ...] = ()  # in addition to the names of strategy, model, data set and runner
    wait_s: float = ranged(30.0, "> 0")  # for the upload at the end of a run

    _where = "tracker"


Tracker = NoTrackerConfig | WandbConfig
TRACKERS: dict[str, type[Tracker]] = {"none": NoTrackerConfig, "wandb": WandbConfig}
