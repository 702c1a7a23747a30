"""Golden traces: what each strategy says, event by event, in small cases that a person can follow.

`make test ARGS="--rewrite-traces -k traces"` writes them anew; read the difference before you commit it.
"""

from pathlib import Path

import pytest
from harness import Harness

from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import Apply, Command, StrategyOptions
from syncline.strategies.ssp import SspOptions

TRACES = Path(__file__).parents[1] / "traces"

CASES: dict[str, tuple[StrategyOptions, tuple[float, ...], int]] = {
    # strategy, seconds a gradient takes by worker, pushes
    "bsp": (BspOptions(), (1.0, 1.3, 3.1), 9),
    "asp": (AspOptions(), (1.0, 1.3, 3.1), 12),
    "ssp": (SspOptions(staleness=2), (1.0, 1.3, 3.1), 18),
    "dssp_paper": (DsspOptions(s_lower=1, r_max=4), (1.0, 3.1), 24),
    "dssp_hard": (DsspOptions(s_lower=1, r_max=4, bound="hard"), (1.0, 3.1), 24),
    "dssp_catchup": (DsspOptions(s_lower=1, r_max=4, bound="catchup"), (1.0, 3.1), 24),
    "dssp_three_workers": (DsspOptions(s_lower=1, r_max=3), (1.0, 1.3, 3.1), 24),
}


@pytest.mark.parametrize("name", CASES)
def test_the_trace_is_as_written_down(name, request):
    options, seconds, pushes = CASES[name]
    trace = play(options, seconds, pushes)
    path = TRACES / f"{name}.txt"
    if request.config.getoption("--rewrite-traces"):
        path.write_text(trace)
    assert trace == path.read_text()


def test_every_trace_belongs_to_a_case():
    assert {path.stem for path in TRACES.glob("*.txt")} == set(CASES)


def play(options: StrategyOptions, seconds: tuple[float, ...], pushes: int) -> str:
    """One line an event; messages take no time."""
    harness = Harness(options, len(seconds))
    lines = [f"{options}, a gradient takes {', '.join(f'{s:g}' for s in seconds)} s"]
    ends = dict(enumerate(seconds))
    for push in range(pushes):
        worker = min(ends, key=lambda w: (ends[w], w))
        version = harness.granted[worker]
        commands = harness.push(worker, ends.pop(worker) - harness.now)
        said = "; ".join(text(command) for command in commands)
        lines.append(f"{harness.now:6.1f} s  worker {worker} pushes {push:2} computed at v{version:<2} -> {said}")
        ends |= {w: harness.now + seconds[w] for w in harness.running if w not in ends}
    return "\n".join(lines) + "\n"


def text(command: Command) -> str:
    because = f" ({command.because})" if command.because else ""
    if isinstance(command, Apply):
        return f"apply {'+'.join(map(str, command.pushes))}{because}"
    return f"{type(command).__name__.lower()} {getattr(command, 'worker', '')}{because}"
