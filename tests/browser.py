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


@dataclass
class Seen:
    """What came of a page."""

    faults: list[str] = field(default_factory=list)  # of the console, and scripts' errors
    requests: list[str] = field(default_factory=list)  # all that was asked for
    broken_images: list[str] = field(default_factory=list)
    panels: list[tuple[int, int]] = field(default_factory=list)  # at each width: all, and those without a drawing
    overflow: list[int] = field(default_factory=list)  # at each width: pixels that the page is wider than it
    text: str = ""


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


def look(chromium: Any, path: Path, widths: Sequence[int], scripts: bool = True) -> Seen:
    """Open a file in a window that gets these widths one after another, scroll through all of it, say what is seen.

    Without scripts, it is the text alone.
    """
    seen = Seen()
    context = chromium.new_context(viewport={"width": widths[0], "height": 900}, java_script_enabled=scripts)
    page = context.new_page()
    page.on(
        "console", lambda message: seen.faults.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: seen.faults.append(str(error)))
    page.on("requestfailed", lambda request: seen.faults.append(f"{request.url}: failed"))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(path.as_uri(), wait_until="load")
    for width in widths if scripts else ():
        page.set_viewport_size({"width": width, "height": 900})
        seen.panels.append(tuple(page.evaluate(DRAW_ALL)))
        images = page.evaluate("[...document.images].map((i) => [i.src, i.complete && i.naturalWidth > 0])")
        seen.broken_images += [source for source, is_there in images if not is_there]
        seen.overflow.append(
            page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )
    seen.text = page.inner_text("body")
    context.close()
    return seen


# When the figures have taken the window's width: scroll down window by window, until every figure is drawn, and count
# the panels and those without a drawing.
DRAW_ALL = """async () => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  await pause(200);
  for (let y = 0; y <= document.body.scrollHeight; y += 600) { window.scrollTo(0, y); await pause(20); }
  const left = () => [...document.querySelectorAll("figure.figure .panels")].some((place) => place.hidden);
  for (let i = 0; left() && i < 200; i++) await pause(50);
  const panels = [...document.querySelectorAll("figure.figure .panels")].flatMap((place) =>
    place.children.length ? [...place.children] : [place]);
  return [panels.length, panels.filter((panel) => !panel.querySelector(".main-svg")).length];
}"""
