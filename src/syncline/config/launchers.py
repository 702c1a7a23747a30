"""Launchers: who starts the runs of a plan. They are not part of a run's identity."""

from dataclasses import dataclass, field

from syncline.config.bounds import check_numbers
from syncline.config.checks import check


@dataclass(frozen=True)
class HereConfig:
    """This machine's cores."""

    name: str = "here"


@dataclass(frozen=True)
class SlurmConfig:
    """A Slurm array job, submitted immediately; None leaves an option to the cluster's default."""

    name: str = "slurm"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str = "1:00:00"  # of one task, in Slurm's format
    nodes: int = 1  # of one task, >= 1; more only for runs of several hosts
    cpus: int = 1  # of one node, >= 1; for real processes, one a worker
    memory: str | None = None  # of one node: 8G
    gpus: int = 0  # of one node
    max_parallel: int | None = None  # tasks at a time, >= 1
    runs_per_task: int = 1  # at a time as many as cores, >= 1
    signal_delay_s: int = 120  # before the time limit, a task is signalled to write its checkpoint, >= 1
    submit: bool = True  # False: write the script and say how to submit it
    setup: list[str] = field(default_factory=list)  # shell lines before the run: module load ...
    extra: list[str] = field(default_factory=list)  # further options of sbatch: --gres=gpu:a100:1, --exclude=...

    def __post_init__(self) -> None:
        check_numbers(self, "launcher")
        for key in ("nodes", "cpus", "runs_per_task", "signal_delay_s"):
            check(getattr(self, key) >= 1, f"launcher.{key} must be >= 1", getattr(self, key))
        check(self.gpus >= 0, "launcher.gpus must be >= 0", self.gpus)
        most = self.max_parallel
        check(most is None or most >= 1, "launcher.max_parallel must be >= 1 or null", most)
        options = [word for word in self.extra if not word.startswith("-")]
        check(not options, "launcher.extra must hold options of sbatch, which begin with -", options)
        for key in ("partition", "account", "qos", "time", "memory"):
            value = str(getattr(self, key))
            check(not set(value) & set(" \n\t'\""), f"launcher.{key} must be one word", repr(value))


Launcher = HereConfig | SlurmConfig
LAUNCHERS: dict[str, type[Launcher]] = {"here": HereConfig, "slurm": SlurmConfig}
