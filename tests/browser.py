"""A page as a reader sees it: headless Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSPECT = (Path(__file__).parent / "browser.js").read_text()


@dataclass(frozen=True, slots=True)
class View:
    """A page in a window of one width; see browser.js."""

    width: int
    panels: int
    undrawn: int  # panels without a drawing
    broken_images: list[str]
    overflow: int  # pixels that the page is wider than the window
    clipped: list[str]  # drawings, and parts of them, of which not all is visible
    overlaps: list[str]  # parts of a drawing that lie on each other


@dataclass
class Seen:
    """What came of a page."""

    faults: list[str] = field(default_factory=list)  # of the console, and scripts' errors
    requests: list[str] = field(default_factory=list)  # all that was asked for
    views: list[View] = field(default_factory=list)  # one a width
    text: str = ""


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@contextmanager
def opened(chromium: Any, path: Path, seen: Seen, scripts: bool = True) -> Iterator[Any]:
    """A file in a window of its own; what it asks for and complains of goes into `seen`."""
    page = chromium.new_page(java_script_enabled=scripts)
    page.on(
        "console", lambda message: seen.faults.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: seen.faults.append(str(error)))
    page.on("requestfailed", lambda request: seen.faults.append(f"{request.url}: failed"))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(path.as_uri(), wait_until="load")
    yield page
    page.close()


def inspect(page: Any, width: int) -> View:
    """The page when its window has taken this width and all of it has been drawn."""
    page.set_viewport_size({"width": width, "height": 900})
    return View(width, **page.evaluate(INSPECT))


def look(chromium: Any, path: Path, widths: Sequence[int]) -> Seen:
    """Open a file in a window that gets these widths one after another, and scroll to all of its figures."""
    seen = Seen()
    with opened(chromium, path, seen) as page:
        seen.views = [inspect(page, width) for width in widths]
        seen.text = page.inner_text("body")
    return seen


def read(chromium: Any, path: Path) -> Seen:
    """Open a file without scripts: its text alone."""
    seen = Seen()
    with opened(chromium, path, seen, scripts=False) as page:
        seen.text = page.inner_text("body")
    return seen
