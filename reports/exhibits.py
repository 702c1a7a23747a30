"""What an artefact shows, and what a paper is to the reports: its artefacts and its claims."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from reports.claims import Claim, Verdict, judge
from reports.figures import FORMATS, Figure
from reports.records import Artefact, Run, load_artefact, published
from reports.tables import Table
from syncline.records.timeline import draw, read_timeline, window_of

SCALES = ("smoke", "laptop", "gpu", "paper")


@dataclass(frozen=True, slots=True)
class Picture:
    """The timeline of one run: who computed, sent and waited, and when."""

    title: str
    run: Run
    begin_s: float | None = None  # of the window; None for the window that shows some forty gradients
    end_s: float | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def write(self, folder: Path, stem: str, formats: Sequence[str] = FORMATS) -> list[Path]:
        """`stem`.svg, .png and .pdf in the folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{stem}.{suffix}" for suffix in formats if suffix in ("svg", "png", "pdf")]
        timeline, kind = read_timeline(self.run.folder)
        draw(timeline, self.title, kind, *window_of(timeline, self.begin_s, self.end_s), files)
        return files


Item = Table | Figure | Picture
Exhibit = Mapping[str, Item]  # suffix -> item; "" for the main one, whose files are called as the artefact


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


class Shelf:
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


class Press:
    """Writes items on all cores: a figure takes about a second in all its formats.

    A context: its end waits for everything.
    """

    def __init__(self, folder: Path, formats: Sequence[str]) -> None:
        self._folder, self._formats = folder, formats
        self._pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)))

    def print(self, exhibit: Exhibit, stem: str) -> list[tuple[Item, Future[list[Path]]]]:
        """The items of an exhibit, each with the files that it is going to be in."""
        return [
            (item, self._pool.submit(item.write, self._folder, f"{stem}-{suffix}" if suffix else stem, self._formats))
            for suffix, item in exhibit.items()
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
