"""What an artefact shows, and what a paper is to the reports: its artefacts and its claims."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import matplotlib

import reports.figures
import syncline.records.timeline
from reports.claims import Claim, Verdict, judge
from reports.figures import Figure
from reports.records import Artefact, Run, load_artefact, published
from reports.tables import Table
from syncline.records.store import cores
from syncline.records.timeline import draw, read_timeline, window_of

DRAWN = "reports"  # the folder, in that of the results, of all files
SCALES = ("smoke", "laptop", "gpu", "paper")


@dataclass(frozen=True, slots=True)
class Picture:
    """The timeline of one run: who computed, sent and waited, and when."""

    title: str
    run: Run
    begin_s: float | None = None  # of the window; None for the window that shows some forty gradients
    end_s: float | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def shown(self) -> dict[str, Any]:
        """All that the picture depends on; a run that is made again takes another wall time."""
        return {"title": self.title, "summary": self.run.summary, "begin_s": self.begin_s, "end_s": self.end_s}

    def write(self, folder: Path, stem: str) -> list[Path]:
        """`stem`.svg, .png and .pdf in the folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{stem}.{suffix}" for suffix in ("svg", "png", "pdf")]
        timeline, kind = read_timeline(self.run.folder)
        draw(timeline, self.title, kind, *window_of(timeline, self.begin_s, self.end_s), files)
        return files


Item = Table | Figure | Picture
Exhibit = Mapping[str, Item]  # suffix -> item; "" for the main one, whose files are called as the artefact


def shows(main: Callable[[Artefact], Item], **others: Callable[[Artefact], Item]) -> Callable[[Artefact], Exhibit]:
    """An artefact -> its main item, and the others by suffix."""
    made = {"": main, **others}
    return lambda artefact: {suffix: make(artefact) for suffix, make in made.items()}


@dataclass(frozen=True)
class Paper:
    """One paper: `shows` and `claims` cover every artefact and claim that its text has."""

    key: str  # "psp": of published/<key>.yaml, conf/experiment/<key>/, `make <key>-table1`
    shows: Mapping[str, Callable[[Artefact], Exhibit]]  # "table1" -> what it shows
    claims: Sequence[Claim]

    @property
    def title(self) -> str:
        title: str = published(self.key)["title"]
        return title

    def claim_text(self, key: str) -> str:
        text: str = published(self.key)["claims"][key]
        return text


class ArtefactStore:
    """The artefacts of one scale in a folder of results, each loaded once."""

    def __init__(self, results: Path, scale: str) -> None:
        self.results, self.scale = results, scale
        self._loaded: dict[str, Artefact] = {}

    def artefact(self, name: str) -> Artefact:
        """Raises RecordError where there is no plan or no finished run of it."""
        if name not in self._loaded:
            self._loaded[name] = load_artefact(name, self.scale, self.results)
        return self._loaded[name]

    def verdicts(self, paper: Paper) -> list[Verdict]:
        """One a claim, in the paper's order."""
        return [judge(claim, paper.claim_text(claim.key), self.scale, self.artefact) for claim in paper.claims]


class ExhibitWriter:
    """Writes items on all cores: a drawing takes about a second in all its formats, and none if it is there already.

    A context: its end waits for everything.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ProcessPoolExecutor(cores())

    def print(self, exhibit: Exhibit, stem: str) -> list[tuple[Item, Future[list[Path]]]]:
        """The items of an exhibit, each with the files that it is going to be in."""
        return [
            (item, self._pool.submit(written, item, self._folder, f"{stem}-{suffix}" if suffix else stem))
            for suffix, item in exhibit.items()
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def written(item: Item, folder: Path, stem: str) -> list[Path]:
    """The item's files; those of a drawing stay as they are if it would come out the same.

    `stem`.drawn says from what they were drawn. It is written last, and goes first.
    """
    if isinstance(item, Table):
        return item.write(folder, stem)
    shown = asdict(item) if isinstance(item, Figure) else item.shown()
    content = json.dumps([shown, _pen()], default=lambda numbers: numbers.tolist())
    digest = sha256(content.encode()).hexdigest()
    stamp = folder / f"{stem}.drawn"
    if stamp.exists():
        drawn_from, *names = stamp.read_text().split("\n")
        files = [folder / name for name in names]
        if drawn_from == digest and all(file.exists() for file in files):
            return files
        stamp.unlink(missing_ok=True)  # another process may be drawing it
    files = item.write(folder, stem)
    stamp.write_text("\n".join([digest, *(file.name for file in files)]))
    return files


@cache
def _pen() -> str:
    """With what all is drawn: our code, and matplotlib's version."""
    code = [Path(module.__file__ or "").read_text() for module in (reports.figures, syncline.records.timeline)]
    return sha256("".join([*code, matplotlib.__version__]).encode()).hexdigest()
