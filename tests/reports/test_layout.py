"""Figures on a page, in a browser: all of them is visible, and no part lies on another."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from browser import CHROMIUM, Window, browser

from reports.figures import Figure, Panel, Series
from reports.site import FILES, Section, Shown, rendered, static

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"),
]

WIDTHS = (1400, 700, 400)  # the first is the one that the drawings are made at
LONG = "A title that is far too long for one line of a narrow panel, so that it has to be wrapped somewhere"
CURVES = [
    Series(
        f"a curve with a rather long name, number {n}",
        [0.0, 10.0, 20.0],
        [0.001 * 10**n, 0.02, 0.0],
        colour=n,
        low=[0.0005 * 10**n, 0.01, 0.0],
        high=[0.002 * 10**n, 0.03, 0.1],
    )
    for n in range(6)
]
PANELS = (
    Panel("virtual seconds to a quarter above the error left", "test loss left above its minimum", CURVES, LONG),
    Panel("K", "loss", CURVES[:2], "", log_x=True, log_y=True),
    Panel("workers", "accuracy, %", [Series("", [0.0, 1.0], [0.0, 12345.0])], "short", y_range=(0.0, 2e4)),
    Panel(
        "task",
        "BSP's seconds / own seconds",
        [Series(f"DS-Sync, {n}", range(5), [1.0] * 5, "bars", colour=n) for n in range(6)],
        LONG,
        categories=["CIFAR-10", "CIFAR-100", "ImageNet", "SQuAD", "Criteo"],
    ),
)


@pytest.fixture(scope="module")
def window() -> Iterator[Window]:
    with browser() as chromium:
        yield Window(chromium)


def page_of(folder: Path, figures: Sequence[Figure]) -> Path:
    """A page that shows them; their still pictures are empty."""
    (folder / FILES).mkdir()
    static(folder / FILES)
    (folder / FILES / "still.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="960" height="400"/>')
    files = Future[list[Path]]()
    files.set_result([Path("still.svg")])
    section = Section("a/b", "Figures", "make a-b", [Shown(figure, files) for figure in figures])
    (folder / "page.html").write_text(rendered("strategies.html", "laptop", {"sections": [section]}))
    return folder / "page.html"


def test_every_part_of_a_figure_is_visible_and_lies_on_no_other(window: Window, tmp_path: Path) -> None:
    """Of two and of four panels, at any width, and when a button has changed the scale."""
    figures = [Figure(f"{LONG}: {count}", PANELS[:count]) for count in (2, 4)]
    seen = window.open(page_of(tmp_path, figures), WIDTHS[0])
    for width in WIDTHS:
        view = window.view(width)
        assert (view.panels, view.undrawn, view.overflow) == (6, 0, 0), width
        assert (view.clipped, view.overlaps) == ([], []), width
    before = window.page.evaluate(SCALES)
    window.page.evaluate(PRESS_OTHER)
    assert set(zip(before, window.page.evaluate(SCALES), strict=True)) == {("linear", "log"), ("log", "linear")}
    view = window.view(WIDTHS[-1])
    assert (view.clipped, view.overlaps) == ([], [])
    assert seen.faults == []


SCALES = "[...document.querySelectorAll('.js-plotly-plot')].map((drawing) => drawing.layout.yaxis.type)"
PRESS_OTHER = (
    "document.querySelectorAll('.updatemenu-button:nth-of-type(2)')"
    ".forEach((button) => button.dispatchEvent(new MouseEvent('click')))"
)

# What is done to a drawing -> (a part is cut off, parts overlap).
HARMS = {
    "drawing": (False, False),
    "drawing.style.height = '100px'": (True, False),
    "Plotly.relayout(drawing, {'xaxis.title.text': 'x'.repeat(200)})": (True, False),
    "Plotly.relayout(drawing, {'title.text': 'x'.repeat(100)})": (False, True),
}


def test_the_inspection_sees_what_is_cut_off_and_what_overlaps(window: Window, tmp_path: Path) -> None:
    figures = [Figure(harm, [Panel("x", "y", CURVES[:1], "title")]) for harm in HARMS]
    window.open(page_of(tmp_path, figures), 1400)
    window.view(1400)
    for position, harm in enumerate(HARMS):
        window.page.evaluate(f"(drawing => {{ {harm} }})(document.querySelectorAll('.js-plotly-plot')[{position}])")
    view = window.view(1400)

    def is_in(harm: str, lines: Sequence[str]) -> bool:
        return any(line.startswith(f"{harm}: ") for line in lines)

    assert {harm: (is_in(harm, view.clipped), is_in(harm, view.overlaps)) for harm in HARMS} == HARMS
