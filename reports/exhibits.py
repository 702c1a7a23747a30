"""The items that an artefact is shown by, and a paper as the reports see it: its artefacts and its claims."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from reports.claims import NOT_RUN, Claim, Verdict, judge
from reports.figures import FORMATS, Figure
from reports.records import ARM_NAMES, OWN, SAME, Artefact, Run, load_artefact, origins, published
from reports.scoreboard import scoreboard
from reports.tables import Table
from syncline.operations.names import readable
from syncline.records.drawing import draw
from syncline.records.environment import cores
from syncline.records.plans import plan_path, stem_of
from syncline.records.reference import Reference
from syncline.records.sources import ResultsFolder, Source
from syncline.records.spans import timeline_and_kind, window_of
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, read_study, study_path, study_stems

REPORTS = "reports"  # in the folder of the results: all files
SCALES = ("smoke", "laptop", "workstation", "gpu", "paper")


@dataclass(frozen=True, slots=True)
class Picture:
    """The timeline of one run: when each worker computed, sent and waited. RecordError where it has no event log."""

    title: str
    run: Run
    begin_s: float | None = None  # of the window; None: a window of some forty gradients
    end_s: float | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not self.run.record.has_events:
            self.run.record.events()  # raises the error that says why

    def write(self, folder: Path, stem: str, formats: Sequence[str] = FORMATS) -> list[Path]:
        """`stem` in these formats in the folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{stem}.{suffix}" for suffix in formats]
        record = self.run.record
        timeline, kind = timeline_and_kind(record.events(), self.run.summary, record.config())
        draw(timeline, self.title, kind, *window_of(timeline, self.begin_s, self.end_s), files)
        return files


Item = Table | Figure | Picture
Exhibit = Mapping[str, Item]  # suffix -> item; "" for the main one, whose files have the artefact's name


def shows(main: Callable[[Artefact], Item], **others: Callable[[Artefact], Item]) -> Callable[[Artefact], Exhibit]:
    """An artefact -> its main item, and the others by suffix; of these no table without rows."""

    def shown(artefact: Artefact) -> Exhibit:
        more = {suffix: make(artefact) for suffix, make in others.items()}
        return {"": main(artefact)} | {
            key: item for key, item in more.items() if not isinstance(item, Table) or item.rows
        }

    return shown


@dataclass(frozen=True)
class Paper:
    """One paper: `shows` and `claims` cover every artefact and every claim of its text."""

    key: str  # "psp": of published/<key>.yaml, conf/experiment/<key>/, `make <key>-table1`
    shows: Mapping[str, Callable[[Artefact], Exhibit]]  # "table1" -> its exhibit
    claims: Sequence[Claim]

    @property
    def title(self) -> str:
        return str(published(self.key)["title"])

    def exhibit(self, name: str, artefact: Artefact) -> Exhibit:
        """The items of an artefact; where each strategy also learned at its own rate, those again as `own`, ...

        Raises:
            RecordError: a run that they need is missing.
        """
        try:
            items = dict(self.shows[name](artefact.arm(SAME).with_common_seeds()))
            own = artefact.arm(OWN).with_common_seeds() if OWN in artefact.arms else None
            if own is not None and not all(run.is_timed for run in own.runs):
                for suffix, item in self.shows[name](own).items():
                    titled = replace(item, title=f"{item.title}, {ARM_NAMES[OWN]}")
                    items[f"{OWN}-{suffix}" if suffix else OWN] = titled
            return items
        except LookupError as error:
            what = f"not complete, or not part of this scale: {error}"
            raise RecordError(f"{stem_of(artefact.name, artefact.scale)}: {what}") from error


class ArtefactStore:
    """The artefacts and verdicts of one scale, each made once.

    Args:
        results: folder of the records, which come first.
        reference: folder of the reference, which has the runs and plans that are not there; None: none.
    """

    def __init__(self, results: Path, scale: str, reference: Path | None = None) -> None:
        self.results, self.scale = results, scale
        self._folders = [results, *([] if reference is None else [reference])]
        self._reference = None if reference is None else Reference(reference / scale)
        self._loaded: dict[str, Artefact] = {}
        self._judged: dict[str, list[Verdict]] = {}

    def artefact(self, name: str) -> Artefact:
        """Raises RecordError where there is no plan or no finished run of it."""
        if name not in self._loaded:
            self._loaded[name] = load_artefact(name, self.scale, self.results, self._reference)
        return self._loaded[name]

    @property
    def sources(self) -> list[Source]:
        """Where plans and records are, the results first."""
        return [ResultsFolder(self.results), *([] if self._reference is None else [self._reference])]

    def has(self, name: str) -> bool:
        """Whether there is a plan of an artefact."""
        stem = stem_of(name, self.scale)
        is_run = plan_path(self.results, stem).exists()
        return is_run or (self._reference is not None and self._reference.plan(stem) is not None)

    @property
    def has_plans(self) -> bool:
        """Whether anything of this scale was run."""
        is_run = any((self.results / "plans").glob(f"*-{self.scale}.json"))
        return is_run or (self._reference is not None and bool(self._reference.stems))

    def studies(self) -> dict[Path, WrittenStudy]:
        """File -> study, of those of the store's scale, by their names; those in the results come first.

        A broken one is named in a line, and left out.
        """
        found = {stem: study_path(folder, stem) for folder in reversed(self._folders) for stem in study_stems(folder)}
        read = readable(lambda stem: (found[stem], read_study(found[stem])), sorted(found))
        return {path: study for path, study in read if study.scale == self.scale}

    def origins(self, key: str = "") -> str:
        """Where the runs of the artefacts loaded so far are from; empty if there are none.

        Args:
            key: of a paper; empty: of all.
        """
        loaded = [artefact for name, artefact in self._loaded.items() if not key or name.startswith(f"{key}/")]
        return origins([run.record for artefact in loaded for run in artefact.runs]) if loaded else ""

    def verdicts(self, paper: Paper) -> list[Verdict]:
        """One a claim, in the paper's order."""
        if paper.key not in self._judged:
            self._judged[paper.key] = [judge(claim, self.scale, self.artefact) for claim in paper.claims]
        return self._judged[paper.key]


def verdicts(stores: Sequence[ArtefactStore], paper: Paper) -> list[Verdict]:
    """One a claim, in the paper's order: of the first of these scales that judges it, else why the last does not."""
    found = []
    for of_claim in zip(*(store.verdicts(paper) for store in stores), strict=True):
        judged = [verdict for verdict in of_claim if verdict.verdict != NOT_RUN or verdict.numbers]
        found.append(next((each for each in judged if each.numbers), judged[0] if judged else of_claim[-1]))
    return found


def numbers(stores: Sequence[ArtefactStore], paper: Paper, title: str) -> Table:
    """The verdicts as a table, number by number; its last notes tell where the runs are from."""
    table = scoreboard(title, verdicts(stores, paper))
    return replace(table, notes=[*table.notes, *filter(None, (store.origins(paper.key) for store in stores))])


class ExhibitWriter:
    """Writes items on all cores.

    A context manager: its end waits for all files.

    Args:
        folder: of the files.
        formats: of drawings, some of FORMATS.
    """

    def __init__(self, folder: Path, formats: Sequence[str] = FORMATS) -> None:
        self._folder, self._formats = folder, formats
        self._pool = ProcessPoolExecutor(cores())

    def submit(self, exhibit: Exhibit, stem: str) -> list[tuple[Item, Future[list[Path]]]]:
        """The items of an exhibit, each with its files to come."""
        submitted = []
        for suffix, item in exhibit.items():
            write = item.write if isinstance(item, Table) else partial(item.write, formats=self._formats)
            submitted.append((item, self._pool.submit(write, self._folder, f"{stem}-{suffix}" if suffix else stem)))
        return submitted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
