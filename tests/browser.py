"""A page as a reader sees it: headless Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
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
    overlaps: list[str]  # parts of a drawing that overlap


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened on a page."""

    faults: list[str] = field(default_factory=list)  # of the console, and scripts' errors
    requests: list[str] = field(default_factory=list)  # all that was requested


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


class Window:
    """Shows one page after another: a window for each would compile Plotly's script every time."""

    def __init__(self, chromium: Any, scripts: bool = True) -> None:
        self.page = chromium.new_page(java_script_enabled=scripts)
        self._seen = Seen()
        self.page.on("console", self._on_request)
        self.page.on("pageerror", lambda error: self._seen.faults.append(str(error)))
        self.page.on("requestfailed", lambda request: self._seen.faults.append(f"{request.url}: failed"))
        self.page.on("request", lambda request: self._seen.requests.append(request.url))

    def _on_request(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._seen.faults.append(message.text)

    def open(self, path: Path, width: int) -> Seen:
        """Load a file at this width; what is seen later, until the next is loaded, is added."""
        self._resize(width)
        self._seen = Seen()
        self.page.goto(path.as_uri(), wait_until="load")
        return self._seen

    def view(self, width: int) -> View:
        """The page when its window has taken this width and all of it has been drawn."""
        self._resize(width)
        return View(width, **self.page.evaluate(INSPECT))

    def _resize(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 900})

    @property
    def text(self) -> str:
        text: str = self.page.inner_text("body")
        return text
