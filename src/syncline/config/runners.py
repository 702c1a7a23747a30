"""Options of the runners and the trackers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from syncline.config.checks import check, check_choice


@dataclass(frozen=True)
class SimulateConfig:
    """Virtual time, in one process."""

    name: str = "simulate"
    events: bool = True  # write events.arrow
    checkpoint_every_s: float = 300.0  # wall seconds, > 0; shorter runs leave none unless they are told to stop

    time_kind: ClassVar[str] = "virtual"

    def __post_init__(self) -> None:
        check(self.checkpoint_every_s > 0, "runner.checkpoint_every_s must be > 0", self.checkpoint_every_s)


@dataclass(frozen=True)
class LocalConfig:
    """Real processes on this machine, started by torchrun."""

    name: str = "local"
    events: bool = True  # write events.arrow
    transport: str = "auto"  # one of TRANSPORTS; auto: unix where there is one
    pace: str = "relative"  # one of PACES: how the cluster's gradient_s is kept
    evaluate: str = "after"  # after, during: when snapshots are evaluated
    checkpoint_every_epochs: float = 1.0  # > 0
    hang_s: float = 30.0  # a worker that is silent so long is named, > 0
    leave_s: float = 300.0  # and after so long treated as gone, > 0
    start_timeout_s: float = 300.0  # for all processes to be there, > 0
    max_restarts: int = 3  # of the whole run, from its checkpoint, >= 0
    tls_cert: str = ""  # PEM files; empty: no TLS
    tls_key: str = ""

    time_kind: ClassVar[str] = "wall"

    def __post_init__(self) -> None:
        for key, allowed in (("transport", TRANSPORTS), ("pace", PACES), ("evaluate", ("after", "during"))):
            check_choice(f"runner.{key}", getattr(self, key), allowed)
        for key in ("checkpoint_every_epochs", "hang_s", "leave_s", "start_timeout_s"):
            check(getattr(self, key) > 0, f"runner.{key} must be > 0", getattr(self, key))
        check(self.max_restarts >= 0, "runner.max_restarts must be >= 0", self.max_restarts)
        check(
            bool(self.tls_cert) == bool(self.tls_key),
            "runner.tls_cert and runner.tls_key go together",
            f"{self.tls_cert!r} and {self.tls_key!r}",
        )


TRANSPORTS = ("auto", "unix", "tcp")
# relative: a worker is as many times slower than the fastest as gradient_s says; absolute: a gradient takes
# gradient_s, if the machine is quick enough.
PACES = ("relative", "absolute")


@dataclass(frozen=True)
class ReplayConfig:
    """A run of real processes, computed again from its event log."""

    name: str = "replay"
    source: str = ""  # identity of the run

    events: ClassVar[bool] = False  # the source's log is the log
    time_kind: ClassVar[str] = "wall"


RUNNERS: dict[str, type[Any]] = {"local": LocalConfig, "replay": ReplayConfig, "simulate": SimulateConfig}


@dataclass(frozen=True)
class NoTrackerConfig:
    name: str = "none"


@dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases."""

    name: str = "wandb"
    project: str = "syncline"
    mode: str = "offline"  # offline, online
    group: str = ""  # runs that stand together; empty: those that differ in their seed only
    tags: tuple[str, ...] = ()  # besides the names of strategy, model, data set and runner
    wait_s: float = 30.0  # at the end of a run, for what is not told yet, > 0

    def __post_init__(self) -> None:
        check(self.mode in ("offline", "online"), "tracker.mode must be offline or online", self.mode)
        check(self.wait_s > 0, "tracker.wait_s must be > 0", self.wait_s)


@dataclass(frozen=True)
class TensorBoardConfig:
    """TensorBoard, whose package is to be installed apart: pip install tensorboard."""

    name: str = "tensorboard"
    wait_s: float = 30.0  # as above

    def __post_init__(self) -> None:
        check(self.wait_s > 0, "tracker.wait_s must be > 0", self.wait_s)


TRACKERS: dict[str, type[Any]] = {"none": NoTrackerConfig, "tensorboard": TensorBoardConfig, "wandb": WandbConfig}
