"""From a plan to its records: the only input of every report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from reports.statistics import Sample
from syncline.metrics import LOWER_IS_BETTER
from syncline.records.plans import plan_path, stem_of
from syncline.records.sources import REFERENCE, Record, ResultsFolder, Source, provenance
from syncline.records.store import RecordError

PUBLISHED = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Run:
    """One finished run of a plan. Its config and its metrics are read when they are first asked for."""

    label: str
    seed: int
    record: Record
    summary: Mapping[str, Any]

    def number(self, key: str) -> float:
        """A number of its summary."""
        return float(self.summary[key])

    @property
    def time_s(self) -> float:
        """Seconds of the whole run, in its kind of time (virtual or wall)."""
        return self.number("time_s")

    @property
    def seconds_an_update(self) -> float:
        return self.time_s / self.number("updates")

    @property
    def is_diverged(self) -> bool:
        return bool(self.summary["status"] == "diverged")

    @property
    def num_workers(self) -> int:
        return int(self.config["cluster"]["workers"])

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return self.record.config()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Its evaluations, in order."""
        return self.record.metrics()

    def curve(self, metric: str, over: str = "time_s") -> tuple[list[float], list[float]]:
        """(places, heights) of a metric: over `time_s`, `epoch` or `updates`."""
        return [row[over] for row in self.metrics], [row[metric] for row in self.metrics]

    def time_to(self, metric: str, target: float, over: str = "time_s") -> float | None:
        """The place of the first evaluation that reaches the target; None if none does."""
        lower = metric in LOWER_IS_BETTER
        reached = (row for row in self.metrics if (row[metric] <= target if lower else row[metric] >= target))
        return next((row[over] for row in reached), None)


@dataclass(frozen=True, slots=True)
class Artefact:
    """A paper's table or figure at one scale: the runs of its plan, finished and missing."""

    name: str  # "dssp/table1"
    scale: str
    report: Mapping[str, Any]  # the section `report` of the experiment's file
    runs: list[Run]
    missing: list[str]  # labels and seeds of runs that are not finished

    def rows(self) -> dict[str, list[Run]]:
        """Label -> its runs, one a seed; in the order of the plan."""
        rows: dict[str, list[Run]] = {}
        for run in self.runs:
            rows.setdefault(run.label, []).append(run)
        return rows

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def sample(self, runs: Sequence[Run], value: Callable[[Run], float | None]) -> Sample:
        """One value a seed of the artefact, None for a seed without a run."""
        by_seed = {run.seed: value(run) for run in runs}
        return Sample(tuple(by_seed.get(seed) for seed in self.seeds))

    def samples(self, value: Callable[[Run], float | None]) -> dict[str, Sample]:
        """Label -> one value a seed."""
        return {label: self.sample(runs, value) for label, runs in self.rows().items()}

    @property
    def closing_notes(self) -> list[str]:
        """The last lines below every table: its command, where its runs are from, and what is missing."""
        return [f"Made by: {self.command}", f"{self.origins}.", *filter(None, [self.incomplete])]

    @property
    def origins(self) -> str:
        """Where its runs are from."""
        return origins([run.record for run in self.runs])

    @property
    def incomplete(self) -> str:
        """One line on the runs that are missing; empty if there are none."""
        if not self.missing:
            return ""
        return f"NOT COMPLETE: {len(self.missing)} runs are missing: {', '.join(self.missing[:6])}"

    @property
    def command(self) -> str:
        """The command that makes it again."""
        return f"make {self.name.replace('/', '-')} SCALE={self.scale}"


def load_artefact(name: str, scale: str, results: Path, reference: Source | None = None) -> Artefact:
    """The records of the plan that was written for this artefact.

    Args:
        results: folder of the records; its plan and its runs come first.
        reference: has the plan if that is not in the results, and the runs of either that are not there.

    Raises:
        RecordError: no such plan, none of its runs is finished, or a record is broken or of a newer format.
    """
    path = plan_path(results, stem_of(name, scale))
    sources: list[Source] = [ResultsFolder(results), *([] if reference is None else [reference])]
    plan = next((plan for source in sources if (plan := source.plan(path.stem)) is not None), None)
    if plan is None:
        raise RecordError(f"{path}: no such plan; make {name.replace('/', '-')} SCALE={scale} makes it")
    runs, missing = [], []
    for entry in plan.runs:
        found = (source.record(entry.identity) for source in sources)
        record = next((record for record in found if record is not None), None)
        if record is None:
            missing.append(f"{entry.label} seed {entry.seed}")
            continue
        runs.append(Run(entry.label, entry.seed, record, record.summary()))
    if not runs:
        raise RecordError(f"{path}: none of its {len(plan.runs)} runs is finished")
    return Artefact(name, scale, plan.report, runs, missing)


def origins(records: Sequence[Record]) -> str:
    """One line: how many runs are from the results, how many from the reference, and where and when those were made."""
    stored = [record for record in records if record.origin == REFERENCE]
    about = f" ({provenance(stored)})" if stored else ""
    return f"Runs: {len(records) - len(stored):,} from results, {len(stored):,} from the reference{about}"


def in_summary(key: str) -> Callable[[Run], float | None]:
    """A function: run -> this number of its summary, which may be None."""
    return lambda run: run.summary[key]


@cache
def published(paper: str) -> Any:
    """The numbers of a paper's text; read once, shared by all callers."""
    return yaml.safe_load((PUBLISHED / f"{paper}.yaml").read_text())
