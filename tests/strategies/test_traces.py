"""Golden traces: the commands of each strategy, event by event, in cases small enough to read.

`make test ARGS="--rewrite-traces -k traces"` rewrites them; read the difference before you commit it.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from answers import interrupted

from syncline.checking.harness import Harness
from syncline.strategies.ad_psgd import GRAPHS as GRAPHS_OF_PEERS
from syncline.strategies.ad_psgd import AdPsgdOptions
from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.gossip import GRAPHS, GossipOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.mindflayer import MindflayerOptions
from syncline.strategies.protocol import Apply, Command, Discard, StrategyOptions, WaitFor, WakeAt
from syncline.strategies.psp import PspOptions
from syncline.strategies.rennala import RennalaOptions
from syncline.strategies.ringmaster import RingmasterOptions
from syncline.strategies.ssp import SspOptions
from syncline.strategies.sync_switch import SyncSwitchOptions

TRACES = Path(__file__).parents[1] / "traces"


@dataclass(frozen=True)
class Run:
    """A run whose messages take no time."""

    options: StrategyOptions
    seconds: tuple[float | tuple[float, ...], ...]  # of a gradient, by worker, or by worker and mini-batch in turn
    pushes: int
    losses: tuple[float, ...] = ()  # reported with each push; the last one stays
    is_drawn: bool = False  # the workers' timelines, too; one column a second


@dataclass(frozen=True)
class Groups:
    """A collective has no events: the trace is the groups of each step, or from whom each worker receives."""

    options: StrategyOptions
    workers: tuple[int, ...]
    steps: int


@dataclass(frozen=True)
class Graph:
    """Asynchronous peers: the trace is the neighbours of each worker."""

    options: StrategyOptions
    workers: tuple[int, ...]


FIGURES_4_AND_5 = ((2, 4, 3, 6, 5), (3, 2, 5, 3), (8, 3, 4, 7))  # one set of times for all four K-variants

CASES: dict[str, Run | Groups | Graph] = {
    "bsp": Run(BspOptions(), (1.0, 1.3, 3.1), 9),
    "asp": Run(AspOptions(), (1.0, 1.3, 3.1), 12),
    "ssp": Run(SspOptions(staleness=2), (1.0, 1.3, 3.1), 18),
    "dssp_paper": Run(DsspOptions(s_lower=1, r_max=4), (1.0, 3.1), 24),
    "dssp_hard": Run(DsspOptions(s_lower=1, r_max=4, bound="hard"), (1.0, 3.1), 24),
    "dssp_catchup": Run(DsspOptions(s_lower=1, r_max=4, bound="catchup"), (1.0, 3.1), 24),
    "dssp_three_workers": Run(DsspOptions(s_lower=1, r_max=3), (1.0, 1.3, 3.1), 24),
    "backup": Run(BackupOptions(backups=1), ((1, 2), (2, 1), (3, 4, 1)), 14, is_drawn=True),
    # adasync.txt, figure 4: K = 2 of 3 workers, and what the third does
    "k_sync": Run(KSyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    "k_async": Run(KAsyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    # adasync.txt, figure 5: the same for K = 2 mini-batches
    "k_batch_sync": Run(KBatchSyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    "k_batch_async": Run(KBatchAsyncOptions(k=2), FIGURES_4_AND_5, 10, is_drawn=True),
    "adasync": Run(
        AdasyncOptions(variant="k_async", k=1, interval=3.0),
        (1.0, 1.4, 2.3),
        24,
        losses=(4.0,) * 5 + (1.0,) * 6 + (0.4,),
    ),
    "psp_step": Run(PspOptions(c=2), ((1, 2), (2, 1), (6, 1, 1, 1, 1, 1)), 18, is_drawn=True),
    "psp_newest": Run(PspOptions(c=2, tag="newest"), ((1, 2), (2, 1), (6, 1, 1, 1, 1, 1)), 18, is_drawn=True),
    "psp_timeout": Run(PspOptions(c=2, tau1=1.5), ((1, 2), (2, 3), (4, 3)), 9),
    "ringmaster": Run(RingmasterOptions(r=2), (1.0, 1.3, 3.1), 12),
    "ringmaster_stops": Run(RingmasterOptions(r=3, stops=True), (1.0, 1.3, 6.0), 12),
    "mindflayer": Run(MindflayerOptions(within=3.0), ((1, 2), (2, 5, 2), (9, 4, 2)), 14, is_drawn=True),
    "rennala": Run(RennalaOptions(k=3), ((1,), (2,), (5, 1)), 12, is_drawn=True),
    "sync_switch": Run(SyncSwitchOptions(after=2), (1.0, 1.3, 3.1), 12),
    "ds_sync": Groups(DsSyncOptions(), (4, 9), 4),
    **{f"gossip_{graph}": Groups(GossipOptions(graph=graph), (4, 5), 5) for graph in GRAPHS},
    **{f"ad_psgd_{graph}": Graph(AdPsgdOptions(graph=graph), (2, 5)) for graph in GRAPHS_OF_PEERS},
}


@pytest.mark.parametrize("name", CASES)
def test_the_trace_is_as_recorded(name, request):
    case = CASES[name]
    trace = TRACE_OF[type(case)](case)
    path = TRACES / f"{name}.txt"
    if request.config.getoption("--rewrite-traces"):
        path.write_text(trace)
    assert trace == path.read_text()


def test_every_trace_belongs_to_a_case():
    assert {path.stem for path in TRACES.glob("*.txt")} == set(CASES)


def trace_of_run(case: Run) -> str:
    """One line per event."""

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
        event = "the timer fires"
        if worker is not None:
            word = "tagged " if harness.rules else "computed at v"
            event = f"worker {worker} pushes {push:2} {word}{harness.pushed[worker]:<2}"
            event += f" loss {loss:g}" if case.losses else ""
        answers = texts(commands)
        if harness.rules:
            answers += [
                f"{w} goes on as {harness.granted[w]}" for w in harness.running if harness.batches[w] > batches[w]
            ]
        lines.append(f"{harness.now:6.1f} s  {event} -> {'; '.join(answers) or 'nothing yet'}")
    if case.is_drawn:
        number = "the tag it began with" if harness.rules else "the version it computes at"
        lines += ["", f"each second: {number}; | it pushes, x it is cancelled, . it waits"]
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


def trace_of_groups(case: Groups) -> str:
    """One line per step."""
    lines = [f"{case.options}"]
    for num_workers in case.workers:
        lines.append(f"{num_workers} workers")
        collective = case.options.collective
        who = collective.peers or collective.groups
        turns = [step % collective.turns(num_workers) for step in range(case.steps)]
        lines += [f"  step {step}: {who(turn, num_workers)}" for step, turn in enumerate(turns)]
    return "\n".join(lines) + "\n"


def trace_of_graph(case: Graph) -> str:
    """One line per worker."""
    lines, graph = [f"{case.options}"], case.options.neighbours
    for num in case.workers:
        lines.append(f"{num} workers")
        neighbours = [[graph.neighbour(worker, n, num) for n in range(graph.degree(num))] for worker in range(num)]
        lines += [f"  worker {worker}: {found}" for worker, found in enumerate(neighbours)]
    return "\n".join(lines) + "\n"


TRACE_OF = {Run: trace_of_run, Groups: trace_of_groups, Graph: trace_of_graph}
