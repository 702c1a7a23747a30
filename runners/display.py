"""What a user sees while runs are under way: a live line for one run, a live table for a plan, or plain lines."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syncline.config import RunConfig
from syncline.operations.tables import counted, duration, packed, row_lines
from syncline.plan import Entry, Plan
from syncline.progress import Progress

PLAIN_EVERY_S = 10.0  # between two lines of progress without a terminal

console = Console(stderr=True, highlight=False)
console.soft_wrap = not console.is_terminal  # lines in a file are not wrapped


def say(words: str) -> None:
    """Print one line above the live display."""
    console.print(words, markup=False)


class _Display:
    def __init__(self) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def _show(self, lines: Sequence[str]) -> None:
        """Replace the live display, if there is one; the lines are not truncated."""
        if self._live is not None:
            self._live.update(Text("\n".join(lines), no_wrap=True), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.stop()


class RunDisplay(_Display):
    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        self._time_kind = config.runner.time_kind
        self._epochs = config.epochs
        self._next_plain = PLAIN_EVERY_S
        # (wall seconds, updates, fraction) of the last reports: for the present speed
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
            parts.append(metric_words(progress.metric, progress.value))
        if progress.count is not None:
            parts.append(f"K {progress.count}")
        return [*parts, f"{speed:,.0f} updates/s", f"{duration(left)} left"]


class PlanDisplay(_Display):
    """The live table of a plan: the runs under way, their progress, the number left."""

    def __init__(self, plan: Plan, done: int, about: Callable[[], str] = str) -> None:
        """`about`: further words for each line."""
        super().__init__()
        self._name = f"{plan.name} at scale {plan.scale}" if plan.scale else plan.name
        self._about = about
        self._total = len(plan.unique())
        self._before = self._done = done  # runs finished at the start, and now
        self._failed = 0
        self._begun = time.monotonic()
        self._running: dict[str, tuple[str, Progress | None]] = {}  # identity -> the run's name and progress

    def __enter__(self) -> Self:
        console.print(
            f"{self._name}: {counted(self._total, 'run')}, {self._done} finished before, "
            f"{self._total - self._done} to make{self._further()}"
        )
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        words = f"{self._name}: {self.words()}, {self._failed} failed"
        console.print(f"{words}, {duration(time.monotonic() - self._begun)}")

    def words(self) -> str:
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
        final = "" if summary["final"] is None else f", {metric_words(metric, summary['final'][metric])}"
        ended = summary["ended_by"] if summary["status"] == "finished" else summary["status"].upper()
        target = summary["target"]
        if summary["status"] == "finished" and target["value"] is not None and target["time_s"] is None:
            ended = f"{target_words(summary)}, {ended}"
        words = f"{name}: {ended} at {summary['time_s']:,.1f} s {summary['time_kind']}{final}"
        times = f"{duration(summary['wall_s'])}; {self._left()} left{self._further()}"
        console.print(f"[{self._done}/{self._total}] {words} ({times})", markup=False)

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
        """Redraw the live display, if there is one."""
        if self._live is None:
            return
        rows = [(name, *_how_far(progress)) for name, progress in self._running.values()]
        lines = row_lines(rows, width=live_width()) if rows else []
        self._show([*lines, f"{self._done}/{self._total} finished, {self._left()} left{self._further()}"])

    def _further(self) -> str:
        words = self._about()
        return f"; {words}" if words else ""

    def _left(self) -> str:
        made: float = self._done - self._before + self._failed
        made += sum(progress.fraction for _, progress in self._running.values() if progress is not None)
        passed = time.monotonic() - self._begun
        return duration(passed / made * (self._total - self._before - made) if made > 0 else math.nan)


def _how_far(progress: Progress | None) -> tuple[str, str, str, str]:
    if progress is None:
        return "", "starting", "", ""
    learned = "" if math.isnan(progress.value) else metric_words(progress.metric, progress.value)
    return f"{progress.fraction:4.0%}", f"epoch {progress.epoch:.1f}", f"{progress.time_s:,.1f} s", learned


def live_width() -> int:
    """The width of a live line: one that fills the terminal would be shifted by the echo of Ctrl-C, and stay there."""
    return console.width - len("^C")


def metric_words(metric: str, value: float) -> str:
    """The metric by which a run is judged, in short."""
    return f"{metric.replace('_', ' ')} {value:.3f}"


def number(value: float) -> str:
    """A metric in four decimals, or in three digits if it is large."""
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"


def summary_table(summary: dict[str, Any]) -> Table:
    """The table at the end of a run."""
    table = Table(title=summary["identity"], title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    for rows in (_result_rows, _gradient_rows, _staleness_rows, _time_rows):
        for title, text in rows(summary):
            table.add_row(title, text)
    return table


def _result_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Why the run ended, and what it learned."""
    kind = summary["time_kind"]
    end = f"after {summary['epochs']:.2f} epochs, {summary['time_s']:,.2f} s {kind}"
    yield "ended by", f"{summary['ended_by']} {end}"
    for metric, final in (summary["final"] or {}).items():
        best = summary["best"][metric]
        at = f"after {best['time_s']:,.2f} s {kind} (epoch {best['epoch']:.1f})"
        yield metric.replace("_", " "), f"{number(final)}   best {number(best['value'])} {at}"
    if possible := summary["best_possible"]:
        limits = (f"{metric.replace('_', ' ')} {number(value)}" for metric, value in possible.items())
        yield "best possible", ", ".join(limits)
    if summary["target"]["value"] is not None:
        yield "target", target_words(summary)


def _gradient_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind, each = summary["time_kind"], summary["seconds_per_update"]
    yield "updates", f"{summary['updates']:,}" + (f", {each:.4g} s {kind} each (mean of the whole run)" if each else "")
    yield "gradients", f"{summary['gradients_used']:,} used, {summary['gradients_discarded']:,} discarded"
    if interrupted := summary["gradients_interrupted"]:
        wasted = summary["gradients_wasted"]
        finished = f", {wasted:,} of them finished" if wasted else ""
        yield "interrupted", f"{interrupted:,} gradients{finished}"


def _staleness_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = summary["time_kind"]
    if changes := summary["waits_for"]:
        (_, _, first), (since_s, _, last) = changes[0], changes[-1]
        since = f"since {since_s:,.2f} s {kind}" if since_s else "throughout"
        name = "N" if summary["strategy"] == "backup" else "K"
        yield name, f"{first} -> {last} {since}" if len(changes) > 1 else f"{last} {since}"
    note = summary["lead_note"]
    yield "largest lead", f"{summary['max_lead']}" + (f" ({note})" if note else "")
    yield "mean staleness", f"{summary['mean_staleness']:.2f}"
    if replay := summary.get("replay"):
        verdict = "equal in every bit" if replay["equal"] else f"DIFFER by up to {replay['largest_difference']:.3g}"
        yield "replay", f"{replay['gradients']:,} gradients computed again; the final parameters {verdict}"


def _time_rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "bound_by" in summary:
        yield "time", share_words(summary["time_shares"])
        if summary.get("link_busy"):
            yield "server link", link_words(summary["link_busy"])
        yield "bound by", bound_words(summary)
    if summary.get("restarts"):
        yield "restarts", f"{summary['restarts']} from a checkpoint"
    # with real processes it is mostly their start and the evaluation
    is_virtual = summary["time_kind"] == "virtual"
    speed = f", {summary['updates'] / summary['wall_s']:,.0f} updates/s" if is_virtual else ""
    yield "wall time", f"{summary['wall_s']:.1f} s{speed}"


def target_words(summary: dict[str, Any]) -> str:
    """When a run reached its target, or its best value."""
    target, metric = summary["target"], summary["target"]["metric"]
    words = f"{metric.replace('_', ' ')} {target['value']:g}"
    if target["time_s"] is not None:
        return f"{words} reached after {target['time_s']:,.2f} s {summary['time_kind']}"
    return f"{words} not reached" + (f" (best {summary['best'][metric]['value']:.4g})" if summary["best"] else "")


def share_words(shares: Mapping[str, float]) -> str:
    """The shares of the workers' time, the largest first."""
    ordered = sorted(shares.items(), key=lambda share: -share[1])
    return ", ".join(f"{name} {percent(share)}" for name, share in ordered if share >= 0.005)


def link_words(links: Sequence[Mapping[str, float]]) -> str:
    """How busy the busiest shard's link was."""
    number, busiest = max(enumerate(links), key=lambda link: max(link[1].values()))
    of = f" (shard {number}, the busiest of {len(links)})" if len(links) > 1 else ""
    return f"busy {percent(busiest['in'])} of the time receiving, {percent(busiest['out'])} sending{of}"


def bound_words(summary: dict[str, Any]) -> str:
    """What bound the run, with its shares; the rule is in syncline/records/time_use.py."""
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
