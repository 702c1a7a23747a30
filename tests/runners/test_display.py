"""What is printed of a run: its progress, and its summary at the end."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import TIMING, made
from operations import planned
from rich.console import Console
from screen import Screen

from runners import display
from runners.display import PlanDisplay, RunDisplay, bound_words, link_words, share_words, summary_table
from syncline.config import compose
from syncline.plan import Entry, Plan
from syncline.progress import Progress
from syncline.records.store import read_summary
from syncline.simulation.run import simulate

GROWING = ["strategy=adasync", "strategy.variant=k_batch_sync", "strategy.k=2", "strategy.interval=0.1"]
GROWING += ["optimizer.lr=0.1", "epochs=2", "model=softmax_regression"]

HALF_AN_EPOCH = Progress(
    updates=7, samples=224, epoch=0.5, time_s=1.5, loss=0.5, metric="accuracy", value=0.25, fraction=0.25, wall_s=99.0
)


class Terminal:
    """A person's, on which what is live is drawn."""

    def __init__(self, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._output, self._screen = io.StringIO(), Screen(width)
        monkeypatch.setattr(
            display, "console", Console(file=self._output, width=width, height=50, force_terminal=True, highlight=False)
        )

    @property
    def lines(self) -> list[str]:
        self._screen.write(self._output.getvalue())
        self._output.seek(0)
        self._output.truncate()
        return self._screen.lines

    def interrupt(self) -> None:
        """What a terminal shows of Ctrl-C."""
        assert self.lines
        self._screen.write("^C")


def said(summary: dict[str, Any]) -> dict[str, str]:
    """The rows of the small table."""
    output = io.StringIO()
    Console(file=output, width=200).print(summary_table(summary))
    return {line[:15].strip(): line[15:].strip() for line in output.getvalue().splitlines()[1:]}


def test_the_line_and_the_table_of_adasync_show_how_k_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=output, width=200))
    monkeypatch.setattr(display, "PLAIN_EVERY_S", 0.0)
    config, _ = compose(GROWING)
    shown = RunDisplay(config)
    summary = simulate(config, lambda row: None, shown.progressed)
    counts = [count for _, _, count in summary["waits_for"]]
    assert counts == sorted(set(counts))
    assert (counts[0], len(counts) > 1) == (2, True)
    assert f" | K {counts[-1]} | " in output.getvalue().splitlines()[-1]
    rows = said(summary)
    assert rows["K"] == f"2 -> {counts[-1]} since {summary['waits_for'][-1][0]:.2f} s virtual"
    assert rows["interrupted"].startswith(f"{summary['gradients_interrupted']} gradients")


def test_the_table_shows_interrupted_gradients_and_k_if_there_are_any(tmp_path: Path) -> None:
    summary = read_summary(made(tmp_path, "strategy=ssp", *TIMING))
    assert not {"K", "interrupted"} & set(said(summary))
    counts = {"gradients_interrupted": 1234, "gradients_wasted": 0, "waits_for": [[0.0, 0, 3]]}
    rows = said({**summary, **counts})
    assert (rows["interrupted"], rows["K"]) == ("1,234 gradients", "3 throughout")
    rows = said({**summary, **counts, "gradients_wasted": 12, "waits_for": [[1.25, 40, 3]]})
    assert (rows["interrupted"], rows["K"]) == ("1,234 gradients, 12 of them finished", "3 since 1.25 s virtual")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_live_line_loses_nothing_and_leaves_nothing(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an interrupted run with every part of the line."""
    terminal = Terminal(width, monkeypatch)
    long = replace(HALF_AN_EPOCH, updates=1234567, time_s=12345.6, count=12)
    parts = "update 1,234,567|epoch 0.5/30|12345.6 s virtual|loss 0.500|accuracy 0.250|K 12|0 updates/s|? left"
    with RunDisplay(compose([])[0]) as shown:
        shown.progressed(long)
        lines = terminal.lines
        assert [part.strip() for line in lines for part in line.split("|")] == parts.split("|")
        assert max(map(len, lines)) <= width - len("^C"), "else the echo would begin a line that stays"
        terminal.interrupt()
        shown.progressed(long)
    assert terminal.lines == [""]


def entry(label: str, seed: int) -> Entry:
    return Entry(label, (), replace(compose([])[0], seed=seed))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_live_table_of_a_plan_breaks_no_word_and_leaves_nothing(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(width, monkeypatch)
    entries = [entry("bsp", 0), entry("strategy=ssp strategy.staleness=6 optimizer.lr=0.05", 1), entry("asp", 2)]
    with PlanDisplay(Plan("sweep", "", tuple(entries), {}), done=0) as shown:
        for each in entries:
            shown.started(each)
        shown.progressed(entries[1], replace(HALF_AN_EPOCH, time_s=12345.6))
        shown.tick()
        lines = terminal.lines
        assert " ".join(" ".join(lines).partition("3 to make ")[2].split()) == (
            "bsp seed 0 starting strategy=ssp strategy.staleness=6 optimizer.lr=0.05 seed 1 25% epoch 0.5 "
            "12,345.6 s accuracy 0.250 asp seed 2 starting 0/3 finished, 0:00 left"
        )
        assert max(map(len, lines)) <= width
        terminal.interrupt()
        shown.stopped(entries[0])
        shown.finished(entries[1], SUMMARY)
        shown.tick()
        assert not any("bsp" in line for line in terminal.lines)
    assert " ".join(terminal.lines) == (
        "sweep: 3 runs, 0 finished before, 3 to make [1/3] strategy=ssp strategy.staleness=6 optimizer.lr=0.05 seed 1: "
        "accuracy 0.9 not reached (best 0.881), epochs at 19.4 s virtual, accuracy 0.873 (0:02; 0:00 left) "
        "sweep: 1 of 3 runs finished, 0 failed, 0:00"
    )


SUMMARY = planned.summary() | {
    "time_s": 19.4,
    "wall_s": 2.0,
    "final": {"accuracy": 0.873},
    "best": {"accuracy": {"value": 0.881}},
    "target": {"metric": "accuracy", "value": 0.9, "time_s": None},
}


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ({"target": {"metric": "accuracy", "value": 0.9, "time_s": 19.4}, "ended_by": "target"}, "target at"),
        ({"target": {"metric": "accuracy", "value": None, "time_s": None}}, "epochs at"),
        ({"status": "diverged", "ended_by": "diverged"}, "DIVERGED at"),
    ],
)
def test_only_a_target_that_was_missed_is_not_reached(
    change: dict[str, Any], ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=output, width=200))
    with PlanDisplay(Plan("sweep", "", (entry("bsp", 0),), {}), done=0) as shown:
        shown.started(entry("bsp", 0))
        shown.finished(entry("bsp", 0), SUMMARY | change)
    first, line, last = output.getvalue().splitlines()
    assert first == "sweep: 1 run, 0 finished before, 1 to make"
    assert line.startswith(f"[1/1] bsp seed 0: {ended} 19.4 s virtual, accuracy 0.873 (0:02; ")
    assert last.startswith("sweep: 1 of 1 run finished, 0 failed, ")


# What a run was bound by, whether it reached its target, how fast it was.


def timed(*words: str) -> dict[str, Any]:
    return simulate(compose(["gradients=false", "epochs=null", *words])[0], lambda row: None, lambda progress: None)


def test_the_table_says_that_the_network_bound_a_run_of_a_large_model() -> None:
    """With ResNet-110 DSSP, SSP and ASP are one and the same run on the default cluster."""
    runs = [timed("model=resnet110", f"strategy={name}", "max_updates=200") for name in ("dssp", "ssp", "asp")]
    assert len({summary["time_s"] for summary in runs}) == 1
    rows = said(runs[0])
    assert rows["bound by"].startswith("the network: the server's link was busy 100 %")
    assert rows["bound by"].endswith("of the time; workers computed 15 %")
    assert rows["server link"].endswith(" sending")
    assert rows["time"].startswith("sending ")
    assert rows["updates"].startswith("200, 0.05")
    assert rows["updates"].endswith(" s virtual each (mean of the whole run)")
    assert rows["wall time"].endswith(" updates/s")
    assert said({**runs[0], "time_kind": "wall", "wall_s": 2.0})["wall time"] == "2.0 s"


def test_the_table_explains_a_lead_beyond_the_range() -> None:
    """What a newcomer meets first: DSSP's default reading bounds no lead."""
    rows = said(timed("max_updates=500"))
    lead, _, note = rows["largest lead"].partition(" ")
    assert int(lead) > 16
    assert note == "(strategy.bound=paper does not bound it, hard does: to s_lower + r_max + 1 = 16)"
    assert said(timed("strategy.bound=hard", "max_updates=500"))["largest lead"] == "16"
    assert said(timed("strategy=asp", "max_updates=500"))["largest lead"].isdecimal(), "there is no bound"


def test_the_words_for_what_bound_a_run() -> None:
    shares = {"computing": 0.3, "sending": 0.1, "queueing": 0.004, "waiting": 0.596, "absent": 0.0}
    about = {"time_shares": shares, "busy_by_worker": [0.1, 0.5]}
    assert share_words(shares) == "waiting 60 %, computing 30 %, sending 10 %"
    words = bound_words({**about, "bound_by": "waiting"})
    assert words == "waiting: workers waited 60 % of the time; workers computed 30 %, worker 1 50 %"
    words = bound_words({**about, "bound_by": "computing"})
    assert words == "computing: workers computed 30 % of the time, worker 1 50 %"
    words = bound_words({**about, "bound_by": "network"})
    assert words == "the network: workers were sending 10 % of the time; workers computed 30 %"
    words = bound_words({**about, "bound_by": "network", "link_busy": [{"in": 0.2, "out": 0.7}]})
    assert words == "the network: the server's link was busy 70 % of the time; workers computed 30 %"
    links = [{"in": 0.2, "out": 0.3}, {"in": 0.4, "out": 0.1}]
    assert link_words(links) == "busy 40 % of the time receiving, 10 % sending (shard 1, the busiest of 2)"


def test_the_table_says_that_a_target_was_missed_and_how_near_the_run_came() -> None:
    config, _ = compose(["model=softmax_regression", "epochs=1", "target.value=1.0"])
    summary = simulate(config, lambda row: None, lambda progress: None)
    best = summary["best"]["accuracy"]["value"]
    assert said(summary)["target"] == f"accuracy 1 not reached (best {best:.4g})"
    reached = {**summary, "target": {"metric": "top5", "value": 0.5, "time_s": 1234.5}}
    assert said(reached)["target"] == "top5 0.5 reached after 1,234.50 s virtual"


def test_the_table_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    summary = read_summary(made(tmp_path, "max_updates=5", "target.value=0.9", "seed=3"))
    output = io.StringIO()
    Console(file=output, width=80).print(summary_table(summary))
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(output.getvalue().split())
    assert "…" not in words
    assert "seed" not in words
    assert words.count("-s3-") == 1, "the identity contains the seed, and nothing else does"
    for row in ("updates", "time", "server link", "bound by", "wall time", "target"):
        assert any(line.split("  ")[0].strip() == row for line in lines), row
