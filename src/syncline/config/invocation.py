"""How runs are chosen, started and kept: nothing of it is part of what a run is."""

from dataclasses import dataclass, field
from typing import Any

from syncline.checks import SEEDS, Checked, check, ranged
from syncline.config.runners import HereConfig, Launcher, SlurmConfig


@dataclass(frozen=True)
class ScaleConfig(Checked):
    """The size of an artefact; each experiment defines what it means for its runs."""

    name: str = "laptop"
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2], metadata={"range": SEEDS})  # each for all of the grid

    _where = "scale"

    def __post_init__(self) -> None:
        super().__post_init__()
        are_distinct = bool(self.seeds) and len(set(self.seeds)) == len(self.seeds)
        check(are_distinct, "scale.seeds must be one or more, which differ", self.seeds)


@dataclass(frozen=True)
class Invocation(Checked):
    """How to execute one or many runs; never part of a run's identity."""

    scale: ScaleConfig = field(default_factory=ScaleConfig)
    launcher: Launcher = field(default_factory=HereConfig)  # who starts the runs
    experiment: Any = None  # conf/experiment/<paper>/<artefact>.yaml
    results: str = "results"  # folder of the records
    rerun: bool = False  # repeat what is finished
    jobs: int | None = ranged(None, ">= 1")  # runs at a time; None: one a core
    fail_fast: bool = False  # the first failure stops the others
    debug: bool = False  # show tracebacks

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.results != "", "results must be a folder", "nothing")
        is_slurm = isinstance(self.launcher, SlurmConfig)
        check(
            not (is_slurm and self.rerun), "rerun must be false in Slurm, whose tasks leave finished runs", self.rerun
        )
