"""From a plan to its records: the only input of every report."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from reports.learned import skill, unlearned
from reports.statistics import Sample
from syncline.installation import make_command
from syncline.records.plans import PlannedRun, plan_path, stem_of
from syncline.records.sources import REFERENCE, Record, ResultsFolder, Source, provenance
from syncline.records.store import RecordError

PUBLISHED = Path(__file__).parent / "published"
TIMING = "timing"  # last part of the label of a run of times alone
SAME, OWN = "same", "own"  # arms: one learning rate for all strategies; each strategy's own, last part of a label
ARM_NAMES = {SAME: "one rate for all", OWN: "each strategy's own rate"}


@dataclass(frozen=True)
class Planned:
    """A run of a plan.

    The last part of its label may be TIMING, of a run of times alone, or OWN, of one at its strategy's own rate.
    """

    label: str
    seed: int

    @property
    def is_timed(self) -> bool:
        """Whether it is of times alone."""
        return self.label.endswith(f"/{TIMING}")

    @property
    def arm(self) -> str | None:
        """None of a row of times alone, which both arms have."""
        return None if self.is_timed else OWN if self.label.endswith(f"/{OWN}") else SAME

    @property
    def row(self) -> str:
        """The label without its arm."""
        return self.label.removesuffix(f"/{OWN}")

    def is_one_of(self, patterns: Sequence[str]) -> bool:
        """Whether its row, or that whose times alone it has, is so ("alexnet/*")."""
        return any(fnmatchcase(self.row.removesuffix(f"/{TIMING}"), pattern) for pattern in patterns)

    def __str__(self) -> str:
        return f"{self.label} seed {self.seed}"


class Missing(Planned):
    """A run of a plan that is not finished."""


@dataclass(frozen=True)
class Run(Planned):
    """One finished run of a plan. Its config and its metrics are read when they are first asked for."""

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

    @cached_property
    def skill(self) -> float:
        """How far it has come from chance to perfect; of a run that learns."""
        return skill(self)

    def curve(self, metric: str, over: str = "time_s") -> tuple[list[float], list[float]]:
        """(places, heights) of a metric: over `time_s`, `epoch` or `updates`."""
        return [row[over] for row in self.metrics], [row[metric] for row in self.metrics]


@dataclass(frozen=True)
class Artefact:
    """A paper's table or figure at one scale: the runs of its plan, finished and missing.

    At a scale with arms a row that learns exists twice: `X`, with one learning rate for all strategies, and `X/own`,
    with its strategy's own. Rows of times alone (`X/timing`) belong to both arms. The other parts of a label are values
    of the experiment's `axes`.
    """

    name: str  # "dssp/table1"
    scale: str
    report: Mapping[str, Any]  # the section `report` of the experiment's file
    runs: list[Run]
    missing: list[Missing]
    grown: Sequence[str] = ()  # labels of the rows that have more seeds than these, for claims

    def rows(self) -> dict[str, list[Run]]:
        """Label -> its runs, one a seed; in the order of the plan."""
        rows: dict[str, list[Run]] = {}
        for run in self.runs:
            rows.setdefault(run.label, []).append(run)
        return rows

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a run: `label`, each axis, `arm`, `timed`, `seed`, `run`; an axis or an arm that it has none of is "".

        Raises:
            RecordError: the plan names no axes, or too few.
        """
        rows = []
        for run in self.runs:
            parts = [part for part in run.label.split("/") if part not in (TIMING, OWN)]
            if len(parts) > len(self.axes):
                what = f"its plan has no axes for {run.label}"
                raise RecordError(f"{stem_of(self.name, self.scale)}: {what}; {self.command} makes it anew")
            values = [*parts, *[""] * (len(self.axes) - len(parts))]
            rows.append([run.label, *values, run.arm or "", run.is_timed, run.seed, run])
        return pd.DataFrame(rows, columns=["label", *self.axes, "arm", "timed", "seed", "run"])

    @property
    def axes(self) -> Sequence[str]:
        """Names of the parts of its labels."""
        return tuple(self.report.get("axes", ()))

    def by(self, *axes: str, **where: object) -> dict[Any, list[Run]]:
        """Values of these columns of the frame -> their runs, one a seed, in the order of the plan.

        Args:
            axes: at least one; of a single one the key is its value, else a tuple.
            where: column -> the value that the runs must have there.
        """
        chosen = self.frame
        for column, value in where.items():
            chosen = chosen[chosen[column] == value]
        rows: dict[Any, list[Run]] = {}
        for *key, run in zip(*(chosen[column] for column in (*axes, "run")), strict=True):
            rows.setdefault(tuple(key) if len(axes) > 1 else key[0], []).append(run)
        return rows

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    @property
    def every(self) -> list[Planned]:
        """Its runs, finished and missing."""
        return [*self.runs, *self.missing]

    def planned(self) -> dict[str, set[int]]:
        """Label -> the seeds of its runs, finished or missing."""
        rows: dict[str, set[int]] = {}
        for one in self.every:
            rows.setdefault(one.label, set()).add(one.seed)
        return rows

    @property
    def common_seeds(self) -> set[int]:
        """Those that all rows were planned with."""
        rows = self.planned().values()
        return set.intersection(*rows) if rows else set()

    @property
    def arms(self) -> tuple[str, ...]:
        """SAME, and OWN where a row of it was planned."""
        return (SAME, OWN) if OWN in {one.arm for one in self.every} else (SAME,)

    def arm(self, name: str) -> "Artefact":
        """The rows of one arm, without its suffix, and those of times alone.

        Raises:
            LookupError: there is no such arm.
        """
        if name not in self.arms:
            raise LookupError(f"{self.name} has no runs at {ARM_NAMES[name]}")
        of_arm = self.chosen(lambda one: one.arm in (name, None))
        runs = [replace(one, label=one.row) for one in of_arm.runs]
        missing = [replace(one, label=one.row) for one in of_arm.missing]
        targets = {
            scale: at.get(name, at) if isinstance(at, Mapping) else at
            for scale, at in (self.report.get("targets") or {}).items()
        }
        return replace(self, report={**self.report, "targets": targets}, runs=runs, missing=missing)

    def arm_name(self, name: str) -> str:
        """In words. The key `same_rate` (scale -> words) says what the one rate for all is."""
        return str(
            (self.report.get("same_rate") or {}).get(self.scale, ARM_NAMES[name]) if name == SAME else ARM_NAMES[name]
        )

    def labels(self, arm: str, patterns: Sequence[str]) -> list[str]:
        """Labels, with their arm, of its rows and of times alone that are so (`Planned.is_one_of`)."""
        chosen = self.chosen(lambda one: one.arm in (arm, None) and one.is_one_of(patterns))
        return list(chosen.planned())

    def chosen(self, is_chosen: Callable[[Planned], bool]) -> "Artefact":
        """Some of its runs."""
        runs, missing = filter(is_chosen, self.runs), filter(is_chosen, self.missing)
        return replace(self, runs=list(runs), missing=list(missing))

    def only(self, patterns: Sequence[str]) -> "Artefact":
        """The rows that are so (`Planned.is_one_of`), and their times alone; of one arm."""
        return self.chosen(lambda one: one.is_one_of(patterns))

    def with_common_seeds(self) -> "Artefact":
        """The runs of the seeds that all rows were planned with: what tables and figures compare."""
        common = self.common_seeds
        grown = [label for label, seeds in self.planned().items() if seeds > common]
        return replace(self.with_seeds(common), grown=grown) if grown else self

    def with_seeds(self, seeds: Collection[int]) -> "Artefact":
        """The runs of these seeds."""
        return self.chosen(lambda one: one.seed in seeds)

    def target(self, of: str = "") -> float | None:
        """What times are measured to: fixed beforehand, by runs of other seeds, in the experiment's file.

        None where nothing is fixed.

        Args:
            of: the part of the artefact, where the key `targets` (scale -> number, or part -> number, or either by
                arm) has parts.
        """
        at = (self.report.get("targets") or {}).get(self.scale)
        fixed = at.get(of) if isinstance(at, Mapping) else at
        return None if fixed is None else float(fixed)

    def rivals(self, comparison: str, candidates: Sequence[str]) -> Sequence[str]:
        """Those that a strategy is compared with: the one that the experiment's file names, or every candidate.

        The key `rivals` (scale -> comparison -> name) holds what was chosen on tuning seeds. To choose by the judged
        seeds themselves, the best rival of each, would compare with a minimum over noise.

        Raises:
            ValueError: it names none of the candidates.
        """
        chosen = ((self.report.get("rivals") or {}).get(self.scale) or {}).get(comparison)
        if chosen is not None and chosen not in candidates:
            raise ValueError(f"{self.name}: rivals: {comparison} must be one of {', '.join(candidates)}, got {chosen}")
        return candidates if chosen is None else [chosen]

    @property
    def first_learned(self) -> Run:
        """Raises LookupError if no run has learned."""
        for run in self.runs:
            if not run.is_timed:
                return run
        raise LookupError("a run that learns")

    def sample(self, runs: Sequence[Run], value: Callable[[Run], float | None]) -> Sample:
        """One value a seed of the artefact, None for a seed without a run; flawed where the runs have not learned."""
        by_seed = {run.seed: value(run) for run in runs}
        return Sample(tuple(by_seed.get(seed) for seed in self.seeds), unlearned(runs))

    def samples(
        self, value: Callable[[Run], float | None], rows: Mapping[Any, Sequence[Run]] | None = None
    ) -> dict[Any, Sample]:
        """Key of these rows, or label of all, -> one value a seed."""
        chosen = self.rows() if rows is None else rows
        return {key: self.sample(runs, value) for key, runs in chosen.items()}

    @property
    def closing_notes(self) -> list[str]:
        """The last lines below every table: its command, where its runs are from, and what is missing."""
        return [f"Made by: {self.command}", f"{self.origins}.", *filter(None, [self.incomplete, self.more_seeds])]

    @cached_property
    def origins(self) -> str:
        """Where its runs are from."""
        return origins([run.record for run in self.runs])

    @property
    def incomplete(self) -> str:
        """One line on the runs that are missing; empty if there are none."""
        if not self.missing:
            return ""
        return f"NOT COMPLETE: {len(self.missing)} runs are missing: {', '.join(map(str, self.missing[:6]))}"

    @property
    def more_seeds(self) -> str:
        """One line on the rows that have more seeds than these; empty if there are none."""
        return f"Claims are judged by more seeds of {', '.join(self.grown)}" if self.grown else ""

    @property
    def command(self) -> str:
        """The command that makes it again."""
        return make_command(self.name, self.scale)


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
        raise RecordError(f"{path}: no such plan; {make_command(name, scale)} makes it")
    return artefact_of(name, scale, plan.report, plan.runs, sources)


def artefact_of(
    name: str, scale: str, report: Mapping[str, Any], planned: Sequence[PlannedRun], sources: Sequence[Source]
) -> Artefact:
    """The records of planned runs, each from the first source that has it.

    Raises:
        RecordError: none is finished, a row has several runs a seed, or a record is broken or of a newer format.
    """
    runs, missing = [], []
    identities: dict[tuple[str, int], str] = {}
    for entry in planned:
        if identities.setdefault((entry.label, entry.seed), entry.identity) != entry.identity:
            what = f"its plan is of a sweep: {entry.label} has several runs of seed {entry.seed}"
            raise RecordError(f"{stem_of(name, scale)}: {what}; {make_command(name, scale)} makes it anew")
        found = (source.record(entry.identity) for source in sources)
        record = next((record for record in found if record is not None), None)
        if record is None:
            missing.append(Missing(entry.label, entry.seed))
            continue
        runs.append(Run(entry.label, entry.seed, record, record.summary()))
    if not runs:
        raise RecordError(f"{stem_of(name, scale)}: none of its {len(planned)} runs is finished")
    return Artefact(name, scale, report, runs, missing)


def origins(records: Sequence[Record]) -> str:
    """One line: how many runs are from the results, how many from the reference, and where and when those were made."""
    stored = [record for record in records if record.origin == REFERENCE]
    about = f" ({provenance(stored)})" if stored else ""
    return f"Runs: {len(records) - len(stored):,} from results, {len(stored):,} from the reference{about}"


@cache
def published(paper: str) -> Any:
    """The numbers of a paper's text; read once, shared by all callers."""
    return yaml.safe_load((PUBLISHED / f"{paper}.yaml").read_text())
