"""What a person sees while runs go on: a live line for one, a live table for a plan; plain lines without a terminal."""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syncline.config import RunConfig
from syncline.operations.tables import counted, duration, packed, row_lines
from syncline.plan import Entry, Plan
from syncline.progress import Progress

PLAIN_EVERY_S = 10.0  # without a terminal, a line of progress so often

console = Console(stderr=True, highlight=False)
console.soft_wrap = not console.is_terminal  # a file gets whole lines


def say(words: str) -> None:
    """One line, above whatever is live."""
    console.print(words, markup=False)


class _Display:
    """Something live while it is entered, where there is a terminal."""

    def __init__(self) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def _show(self, lines: Sequence[str]) -> None:
        """In place of what is live, where there is a terminal; nothing of the lines is cut off."""
        if self._live is not None:
            self._live.update(Text("\n".join(lines), no_wrap=True), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


class RunDisplay(_Display):
    """The live line of one run."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        self._time_kind = config.runner.time_kind
        self._epochs = config.epochs
        self._next_plain = PLAIN_EVERY_S
        # (wall seconds, updates, fraction) of the last looks: speed is that of now, not since the beginning
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=25)

    def progressed(self, progress: Progress) -> None:
        self._recent.append((progress.wall_s, progress.updates, progress.fraction))
        if self._live is not None:
            self._show(packed(self._parts(progress), " | ", live_width()))
        elif progress.wall_s >= self._next_plain:
            self._next_plain = progress.wall_s + PLAIN_EVERY_S
            console.print(" | ".join(self._parts(progress)))

    def _parts(self, progress: Progress) -> list[str]:
        (then, updates, fraction), (now, _, _) = self._recent[0], self._recent[-1]
        passed = max(now - then, 1e-9)
        speed, gained = (progress.updates - updates) / passed, (progress.fraction - fraction) / passed
        left = (1 - progress.fraction) / gained if gained > 0 else math.nan
        epochs = "" if self._epochs is None else f"/{self._epochs:g}"
        parts = [
            f"update {progress.updates:,}",
            f"epoch {progress.epoch:.1f}{epochs}",
            f"{progress.time_s:.1f} s {self._time_kind}",
        ]
        if not math.isnan(progress.loss):
            parts.append(f"loss {progress.loss:.3f}")
        if not math.isnan(progress.value):
            parts.append(judged(progress.metric, progress.value))
        if progress.count is not None:
            parts.append(f"K {progress.count}")
        return [*parts, f"{speed:,.0f} updates/s", f"{duration(left)} left"]


class PlanDisplay(_Display):
    """The live table of a plan: what runs, how far it is, what is left."""

    def __init__(self, plan: Plan, done: int) -> None:
        super().__init__()
        self._name = f"{plan.name} at scale {plan.scale}" if plan.scale else plan.name
        self._total = len(plan.unique())
        self._before = self._done = done  # runs that were finished already, and are finished now
        self._failed = 0
        self._begun = time.monotonic()
        self._running: dict[str, tuple[str, Progress | None]] = {}  # identity -> the run's name, how far it is

    def __enter__(self) -> Self:
        console.print(
            f"{self._name}: {counted(self._total, 'run')}, {self._done} finished before, "
            f"{self._total - self._done} to make"
        )
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        words = f"{self._name}: {self.words()}, {self._failed} failed"
        console.print(f"{words}, {duration(time.monotonic() - self._begun)}")

    def words(self) -> str:
        """How much of it is done."""
        return f"{self._done} of {counted(self._total, 'run')} finished"

    def started(self, entry: Entry) -> None:
        self._running[entry.config.identity] = (entry.name, None)

    def progressed(self, entry: Entry, progress: Progress) -> None:
        name, _ = self._running[entry.config.identity]
        self._running[entry.config.identity] = (name, progress)

    def finished(self, entry: Entry, summary: dict[str, Any]) -> None:
        name, _ = self._running.pop(entry.config.identity)
        self._done += 1
        metric = summary["metric"]
        final = "" if summary["final"] is None else f", {judged(metric, summary['final'][metric])}"
        ended = summary["ended_by"] if summary["status"] == "finished" else summary["status"].upper()
        target = summary["target"]
        if summary["status"] == "finished" and target["value"] is not None and target["time_s"] is None:
            ended = f"{target_words(summary)}, {ended}"
        words = f"{name}: {ended} at {summary['time_s']:,.1f} s {summary['time_kind']}{final}"
        console.print(
            f"[{self._done}/{self._total}] {words} ({duration(summary['wall_s'])}; {self._left()} left)", markup=False
        )

    def failed(self, entry: Entry, why: str) -> None:
        name, _ = self._running.pop(entry.config.identity)
        self._failed += 1
        console.print(f"FAILED {name}: {why} (record {entry.config.identity})", style="bold red", markup=False)

    def stopped(self, entry: Entry) -> None:
        self._running.pop(entry.config.identity)

    def held(self, entry: Entry, why: str) -> None:
        name, _ = self._running.pop(entry.config.identity)
        console.print(f"waiting for {name}: {why}", markup=False)

    def tick(self) -> None:
        """Redraw, where there is a terminal."""
        if self._live is None:
            return
        rows = [(name, *_how_far(progress)) for name, progress in self._running.values()]
        lines = row_lines(rows, width=live_width()) if rows else []
        self._show([*lines, f"{self._done}/{self._total} finished, {self._left()} left"])

    def _left(self) -> str:
        made: float = self._done - self._before + self._failed
        made += sum(progress.fraction for _, progress in self._running.values() if progress is not None)
        passed = time.monotonic() - self._begun
        return duration(passed / made * (self._total - self._before - made) if made > 0 else math.nan)


def _how_far(progress: Progress | None) -> tuple[str, str, str, str]:
    if progress is None:
        return "", "starting", "", ""
    learned = "" if math.isnan(progress.value) else judged(progress.metric, progress.value)
    return f"{progress.fraction:4.0%}", f"epoch {progress.epoch:.1f}", f"{progress.time_s:,.1f} s", learned


def live_width() -> int:
    """Of a live line: one that fills the terminal would be moved by the ^C that a terminal shows, and stay there."""
    return console.width - len("^C")


def judged(metric: str, value: float) -> str:
    """The metric that a run is judged by, in a few letters."""
    return f"{metric.replace('_', ' ')} {value:.3f}"


def number(value: float) -> str:
    """Of a metric: four decimals, unless it is so large that they say nothing."""
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"


def summary_table(summary: dict[str, Any]) -> Table:
    """The small table at the end of a run."""
    kind = summary["time_kind"]
    table = Table(title=summary["identity"], title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row(
        "ended by", f"{summary['ended_by']} after {summary['epochs']:.2f} epochs, {summary['time_s']:,.2f} s {kind}"
    )
    if summary["final"] is not None:
        for metric, final in summary["final"].items():
            best = summary["best"][metric]
            at = f"after {best['time_s']:,.2f} s {kind} (epoch {best['epoch']:.1f})"
            table.add_row(metric.replace("_", " "), f"{number(final)}   best {number(best['value'])} {at}")
    if possible := summary.get("best_possible"):
        limits = ", ".join(f"{metric.replace('_', ' ')} {number(value)}" for metric, value in possible.items())
        table.add_row("best possible", limits)
    if summary["target"]["value"] is not None:
        table.add_row("target", target_words(summary))
    each = summary.get("seconds_per_update")
    table.add_row(
        "updates", f"{summary['updates']:,}" + (f", {each:.4g} s {kind} each (mean of the whole run)" if each else "")
    )
    table.add_row("gradients", f"{summary['gradients_used']:,} used, {summary['gradients_discarded']:,} discarded")
    if interrupted := summary.get("gradients_interrupted", 0):
        wasted = summary["gradients_wasted"]
        finished = f", {wasted:,} of them finished" if wasted else ""
        table.add_row("interrupted", f"{interrupted:,} gradients{finished}")
    if changes := summary.get("waits_for", []):
        (_, _, first), (since_s, _, last) = changes[0], changes[-1]
        since = f"since {since_s:,.2f} s {kind}" if since_s else "throughout"
        name = "N" if summary["strategy"] == "backup" else "K"
        table.add_row(name, f"{first} -> {last} {since}" if len(changes) > 1 else f"{last} {since}")
    note = summary.get("lead_note")
    table.add_row("largest lead", f"{summary['max_lead']}" + (f" ({note})" if note else ""))
    table.add_row("mean staleness", f"{summary['mean_staleness']:.2f}")
    if "replay" in summary:
        again = summary["replay"]
        verdict = "equal in every bit" if again["equal"] else f"DIFFER by up to {again['largest_difference']:.3g}"
        table.add_row("replay", f"{again['gradients']:,} gradients computed again; the final parameters {verdict}")
    if "bound_by" in summary:
        table.add_row("time", share_words(summary["time_shares"]))
        if summary.get("link_busy"):
            table.add_row("server link", link_words(summary["link_busy"]))
        table.add_row("bound by", bound_words(summary))
    if summary.get("restarts"):
        table.add_row("restarts", f"{summary['restarts']} from a checkpoint")
    # of real processes it is mostly their start and the evaluation
    speed = f", {summary['updates'] / summary['wall_s']:,.0f} updates/s" if kind == "virtual" else ""
    table.add_row("wall time", f"{summary['wall_s']:.1f} s{speed}")
    return table


def target_words(summary: dict[str, Any]) -> str:
    """Whether a run reached its target, and when, or how near it came."""
    target, metric = summary["target"], summary["target"]["metric"]
    words = f"{metric.replace('_', ' ')} {target['value']:g}"
    if target["time_s"] is not None:
        return f"{words} reached after {target['time_s']:,.2f} s {summary['time_kind']}"
    return f"{words} not reached" + (f" (best {summary['best'][metric]['value']:.4g})" if summary["best"] else "")


def share_words(shares: Mapping[str, float]) -> str:
    """Where the workers' time went, the largest share first."""
    ordered = sorted(shares.items(), key=lambda share: -share[1])
    return ", ".join(f"{name} {percent(share)}" for name, share in ordered if share >= 0.005)


def link_words(links: Sequence[Mapping[str, float]]) -> str:
    """How busy the busiest shard's link was."""
    number, busiest = max(enumerate(links), key=lambda link: max(link[1].values()))
    of = f" (shard {number}, the busiest of {len(links)})" if len(links) > 1 else ""
    return f"busy {percent(busiest['in'])} of the time receiving, {percent(busiest['out'])} sending{of}"


def bound_words(summary: dict[str, Any]) -> str:
    """What bound the run, with the shares that say so; the rule is that of syncline/records/time_use.py."""
    shares, bound_by, busy = summary["time_shares"], summary["bound_by"], summary["busy_by_worker"]
    link = max((max(link.values()) for link in summary.get("link_busy", ())), default=0.0)
    computed = f"workers computed {percent(shares['computing'])}"
    if bound_by == "network":
        sent = f"workers were sending {percent(shares['sending'] + shares.get('queueing', 0.0))}"
        by = f"the server's link was busy {percent(link)}" if link > max(busy) else sent
        return f"the network: {by} of the time; {computed}"
    slowest = max(range(len(busy)), key=busy.__getitem__)
    most = f"worker {slowest} {percent(busy[slowest])}"
    if bound_by == "waiting":
        return f"waiting: workers waited {percent(shares['waiting'])} of the time; {computed}, {most}"
    return f"computing: {computed} of the time, {most}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
