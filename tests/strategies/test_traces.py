"""Golden traces: what each strategy says, event by event, in small cases that a person can follow.

`make test ARGS="--rewrite-traces -k traces"` writes them anew; read the difference before you commit it.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Harness, interrupted

from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import Apply, Command, Discard, StrategyOptions, WaitFor, WakeAt
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions

TRACES = Path(__file__).parents[1] / "traces"


@dataclass(frozen=True)
class Play:
    """Messages take no time."""

    options: StrategyOptions
    seconds: tuple[float | tuple[float, ...], ...]  # a gradient takes, by worker, or by worker and mini-batch in turn
    pushes: int
    losses: tuple[float, ...] = ()  # reported with each push; the last one stays
    is_drawn: bool = False  # the workers' timelines, too; one column a second


@dataclass(frozen=True)
class Groups:
    """A collective has no events: who averages with whom."""

    options: StrategyOptions
    workers: tuple[int, ...]
    steps: int


FIGURES_4_AND_5 = ((2, 4, 3, 6, 5), (3, 2, 5, 3), (8, 3, 4, 7))  # one set of times for all four K-variants

CASES: dict[str, Play | Groups] = {
    "bsp": Play(BspOptions(), (1.0, 1.3, 3.1), 9),
    "asp": Play(AspOptions(), (1.0, 1.3, 3.1), 12),
    "ssp": Play(SspOptions(staleness=2), (1.0, 1.3, 3.1), 18),
    "dssp_paper": Play(DsspOptions(s_lower=1, r_max=4), (1.0, 3.1), 24),
    "dssp_hard": Play(DsspOptions(s_lower=1, r_max=4, bound="hard"), (1.0, 3.1), 24),
    "dssp_catchup": Play(DsspOptions(s_lower=1, r_max=4, bound="catchup"), (1.0, 3.1), 24),
    "dssp_three_workers": Play(DsspOptions(s_lower=1, r_max=3), (1.0, 1.3, 3.1), 24),
    "backup": Play(BackupOptions(backups=1), ((1, 2), (2, 1), (3, 4, 1)), 14, is_drawn=True),
    # adasync.txt, figure 4: who waits for K = 2 of 3 workers, and what becomes of the third
    "k_sync": Play(KSyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    "k_async": Play(KAsyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    # adasync.txt, figure 5: the same for K = 2 mini-batches
    "k_batch_sync": Play(KBatchSyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    "k_batch_async": Play(KBatchAsyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    "adasync": Play(
        AdasyncOptions(variant="k_async", k=1, interval=3.0),
        (1.0, 1.4, 2.3),
        24,
        losses=(4.0,) * 5 + (1.0,) * 6 + (0.4,),
    ),
    "psp_step": Play(PspOptions(c=2), ((1, 2), (2, 1), (6, 1, 1, 1, 1, 1)), 18, is_drawn=True),
    "psp_newest": Play(PspOptions(c=2, tag="newest"), ((1, 2), (2, 1), (6, 1, 1, 1, 1, 1)), 18, is_drawn=True),
    "psp_timeout": Play(PspOptions(c=2, tau1=1.5), ((1, 2), (2, 3), (4, 3)), 9),
    "ds_sync": Groups(DsSyncOptions(), (4, 9), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_the_trace_is_as_written_down(name, request):
    case = CASES[name]
    trace = play(case) if isinstance(case, Play) else groups(case)
    path = TRACES / f"{name}.txt"
    if request.config.getoption("--rewrite-traces"):
        path.write_text(trace)
    assert trace == path.read_text()


def test_every_trace_belongs_to_a_case():
    assert {path.stem for path in TRACES.glob("*.txt")} == set(CASES)


def play(case: Play) -> str:
    """One line an event."""

    def seconds(worker: int, number: int) -> float:
        given = case.seconds[worker]
        return given[number % len(given)] if isinstance(given, tuple) else given

    harness = Harness(case.options, len(case.seconds))
    lines = [f"{case.options}, a gradient takes {', '.join(map(times, case.seconds))} s"]
    drawn: list[list[str]] = [[] for _ in case.seconds]
    while harness.next_push < case.pushes:
        loss = case.losses[min(harness.next_push, len(case.losses) - 1)] if case.losses else 0.0
        push, before, batches, then = harness.next_push, dict(harness.granted), dict(harness.batches), harness.now
        worker, commands = harness.step(seconds, loss)
        for each, line in enumerate(drawn):
            line += [f"{before.get(each, '.')} "] * round(harness.now - then)
            if each == worker or each in interrupted(commands):
                line[-1] = line[-1][0] + ("|" if each == worker else "x")
        happened = "the timer fires"
        if worker is not None:
            word = "tagged " if harness.rules else "computed at v"
            happened = f"worker {worker} pushes {push:2} {word}{harness.pushed[worker]:<2}"
            happened += f" loss {loss:g}" if case.losses else ""
        said = texts(commands)
        if harness.rules:
            said += [f"{w} goes on as {harness.granted[w]}" for w in harness.running if harness.batches[w] > batches[w]]
        lines.append(f"{harness.now:6.1f} s  {happened} -> {'; '.join(said) or 'nothing yet'}")
    if case.is_drawn:
        what = "the tag it began with" if harness.rules else "the version it computes at"
        lines += ["", f"each second: {what}; | it pushes, x it is cancelled, . it waits"]
        lines += [f"worker {worker}  {''.join(line).rstrip()}" for worker, line in enumerate(drawn)]
    return "\n".join(lines) + "\n"


def times(given: float | tuple[float, ...]) -> str:
    return "(" + " ".join(f"{each:g}" for each in given) + ")" if isinstance(given, tuple) else f"{given:g}"


def texts(commands: list[Command]) -> list[str]:
    """Each with its reason, unless the one before it has the same."""
    reasons = [""] + [command.because for command in commands]
    return [
        text(command) + (f" ({command.because})" if command.because != before else "")
        for command, before in zip(commands, reasons, strict=False)
    ]


def text(command: Command) -> str:
    match command:
        case Apply(pushes=pushes, scale=scale):
            return f"apply {'+'.join(map(str, pushes))}" + (f" at {scale:g} times the rate" if scale != 1.0 else "")
        case Discard(push=push):
            return f"discard {push}"
        case WaitFor(count=count):
            return f"wait for {count}"
        case WakeAt(at=at):
            return f"wake at {at:g}"
    return f"{type(command).__name__.lower()} {getattr(command, 'worker', '')}"


def groups(case: Groups) -> str:
    """One line a step."""
    lines = [f"{case.options}"]
    for num_workers in case.workers:
        lines.append(f"{num_workers} workers")
        lines += [f"  step {step}: {case.options.groups(step, num_workers)}" for step in range(case.steps)]
    return "\n".join(lines) + "\n"
