"""A table as data, and as Markdown, LaTeX (booktabs), CSV and on a terminal."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from reports.records import Artefact, Run
from reports.statistics import Sample
from syncline.operations.tables import wrapped

DASH = "—"
TITLE = 12  # characters on a terminal; a longer title is broken between words, unless its column is wider
LONG = 24  # of a cell on a terminal that may be broken between words
GAP = 3  # between two columns

Value = str | float | None | Sample
Case = TypeVar("Case")


def cell_text(value: Value, digits: int = 1, show_n: bool = False) -> str:
    """`digits` after the point; a sample is its mean ± deviation and, with `show_n`, how many seeds have a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sample):
        count = f" ({value.n}/{len(value.values)})" if show_n and value.n < len(value.values) else ""
        if value.n == 0:
            return f"{DASH}{count}"
        spread = "" if math.isnan(value.std) else f" ± {value.std:,.{digits}f}"
        return f"{value.mean:,.{digits}f}{spread}{count}"
    return DASH if value is None or math.isnan(value) else f"{value:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's title, and how its values are printed (`cell_text`)."""

    title: str
    digits: int = 1
    show_n: bool = False


@dataclass(frozen=True, slots=True)
class Column(Generic[Case]):
    """A column of a table over cases: its cell is `value(case)`; None where there is no value."""

    title: str
    value: Callable[[Case], Value]
    digits: int = 1
    show_n: bool = False

    @property
    def heading(self) -> Heading:
        return Heading(self.title, self.digits, self.show_n)


@dataclass(frozen=True, slots=True)
class Measured(Generic[Case]):
    """Rows of an artefact, case by case: it makes columns whose cells are measures of a case's runs, a value a seed."""

    artefact: Artefact
    rows: Mapping[Case, Sequence[Run]]

    def column(
        self, title: str, measure: Callable[[Run], float | None], digits: int = 1, show_n: bool = False
    ) -> Column[Case]:
        return Column(title, lambda case: self.artefact.sample(self.rows[case], measure), digits, show_n)


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[Heading]
    rows: Sequence[Sequence[Value]]  # as long as columns each
    notes: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def of(
        cls, title: str, cases: Iterable[Case], columns: Sequence[Column[Case]], notes: Sequence[str] = ()
    ) -> "Table":
        """A row a case."""
        rows = [[column.value(case) for column in columns] for case in cases]
        return cls(title, [column.heading for column in columns], rows, notes)

    @classmethod
    def of_artefact(
        cls,
        artefact: Artefact,
        title: str,
        cases: Iterable[Case],
        columns: Sequence[Column[Case]],
        notes: Sequence[str] = (),
        subtitle: str = "",
    ) -> "Table":
        """A row a case; the title tells the scale, and the last notes tell the command and what is missing.

        Args:
            subtitle: what follows the scale in the title.
        """
        full_title = f"{title}, at scale {artefact.scale}{subtitle}"
        return cls.of(full_title, cases, columns, [*notes, *artefact.closing_notes])

    def texts(self) -> list[list[str]]:
        return [
            [cell_text(value, of.digits, of.show_n) for of, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def markdown(self) -> str:
        return f"# {self.title}\n\n{self.markdown_body()}\n\n" + "".join(f"- {note}\n" for note in self.notes)

    def markdown_body(self) -> str:
        """Without its title and its notes. Columns of texts alone are flush left, those of numbers right."""
        titles = [column.title for column in self.columns]
        is_text = [all(isinstance(row[k], str) for row in self.rows) for k in range(len(titles))]
        rule = ["---" if is_flush_left else "---:" for is_flush_left in (True, *is_text[1:])]
        lines = [titles, rule, *self.texts()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def latex(self) -> str:
        lines = ["% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering", f"\\caption{{{_tex(self.title)}}}"]
        lines += [f"\\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", "\\toprule"]
        lines += [" & ".join(_tex(column.title) for column in self.columns) + " \\\\", "\\midrule"]
        lines += [" & ".join(_tex(cell) for cell in row) + " \\\\" for row in self.texts()]
        lines += ["\\bottomrule", "\\end{tabular}"]
        lines += [f"\\par\\footnotesize {_tex(note)}" for note in self.notes]
        return "\n".join([*lines, "\\end{table}"]) + "\n"

    def csv(self) -> str:
        """Plain numbers: a sample gives three columns (mean, std, n)."""
        sampled = [any(isinstance(row[k], Sample) for row in self.rows) for k in range(len(self.columns))]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        header: list[str] = []
        for column, is_sample in zip(self.columns, sampled, strict=True):
            header += [f"{column.title} {part}" for part in ("mean", "std", "n")] if is_sample else [column.title]
        writer.writerow(header)
        for row in self.rows:
            cells: list[str | float | None] = []
            for value, is_sample in zip(row, sampled, strict=True):
                if isinstance(value, Sample):
                    cells += [_number(value.mean), _number(value.std), value.n]
                else:
                    cells += [value, None, None] if is_sample else [value]
            writer.writerow(cells)
        return out.getvalue()

    def rich(self) -> RichTable:
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        texts = self.texts()
        for position, (column, width) in enumerate(zip(self.columns, self._widths(), strict=True)):
            is_long = any(len(row[position]) > LONG for row in texts)
            table.add_column(
                "\n".join(wrapped(column.title, width)),
                justify="right" if position and not is_long else "left",
                overflow="fold",
                no_wrap=not is_long,
            )
        for row in texts:
            table.add_row(*row)
        return table

    def pieces(self, width: int) -> Iterator["Table"]:
        """Tables of the first column and as many others as a terminal of this width has room for, without notes."""
        widths = self._widths()
        pieces = [[0]]
        for position in range(1, len(widths)):
            together = sum(widths[each] + GAP for each in (*pieces[-1], position))
            if together > width and len(pieces[-1]) > 1:
                pieces.append([0])
            pieces[-1].append(position)
        for number, own in enumerate(pieces):
            rows = [[row[position] for position in own] for row in self.rows]
            yield Table("" if number else self.title, [self.columns[position] for position in own], rows)

    def _widths(self) -> list[int]:
        """The least characters that each column takes on a terminal."""
        texts = self.texts()
        return [
            max(
                min(len(column.title), TITLE),
                *(len(word) for word in column.title.split()),
                *(min(len(row[position]), LONG) for row in texts),
            )
            for position, column in enumerate(self.columns)
        ]

    def print(self, console: Console) -> None:
        """The table with its notes; in pieces where the terminal is too narrow for it."""
        for piece in self.pieces(console.width):
            console.print(piece.rich())
        for note in self.notes:
            console.print(f"- {note}", markup=False, highlight=False)

    def write(self, folder: Path, stem: str) -> list[Path]:
        """`stem`.md, .csv and .tex in the folder; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {"md": self.markdown(), "csv": self.csv(), "tex": self.latex()}
        for suffix, content in files.items():
            (folder / f"{stem}.{suffix}").write_text(content)
        return [folder / f"{stem}.{suffix}" for suffix in files]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


TEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "—": "---"}
    | {"±": "$\\pm$", "×": "$\\times$", "≥": "$\\geq$", "≤": "$\\leq$", "<": "$<$", ">": "$>$"}
)


def _tex(text: str) -> str:
    return text.translate(TEX)
