"""What is said of a run: while it goes on, and of its summary at the end."""

import io
from pathlib import Path
from typing import Any

import pytest
from commands import TIMING, made
from rich.console import Console

from runners import display
from runners.display import RunDisplay, summary_table
from syncline.config import compose
from syncline.course import Progress
from syncline.records.store import read_summary
from syncline.simulation.run import simulate

GROWING = ["strategy=adasync", "strategy.variant=k_batch_sync", "strategy.k=2", "strategy.interval=0.1"]
GROWING += ["optimizer.lr=0.1", "epochs=4"]


def said(summary: dict[str, Any]) -> dict[str, str]:
    """The rows of the small table."""
    output = io.StringIO()
    Console(file=output, width=200).print(summary_table(summary))
    return {line[:15].strip(): line[15:].strip() for line in output.getvalue().splitlines()[1:]}


def test_the_line_and_the_table_of_adasync_tell_how_k_grew(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_line_is_silent_of_k_where_it_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=output, width=200))
    shown = RunDisplay(compose([])[0])
    shown.progressed(
        Progress(
            updates=7,
            samples=224,
            epoch=0.5,
            time_s=1.5,
            loss=0.5,
            metric="accuracy",
            value=0.25,
            fraction=0.25,
            wall_s=99.0,
        )
    )
    (line,) = output.getvalue().splitlines()
    assert line.startswith("update 7 | epoch 0.5/")
    assert " | 1.5 s virtual | loss 0.500 | accuracy 0.250 | " in line
    assert "K" not in line


def test_the_table_tells_of_interrupted_gradients_and_of_k_where_there_are_any(tmp_path: Path) -> None:
    summary = read_summary(made(tmp_path, "strategy=ssp", *TIMING))
    assert not {"K", "interrupted"} & set(said(summary))
    told = {"gradients_interrupted": 1234, "gradients_in_vain": 0, "waits_for": [[0.0, 0, 3]]}
    rows = said({**summary, **told})
    assert (rows["interrupted"], rows["K"]) == ("1,234 gradients", "3 throughout")
    rows = said({**summary, **told, "gradients_in_vain": 12, "waits_for": [[1.25, 40, 3]]})
    assert (rows["interrupted"], rows["K"]) == ("1,234 gradients, 12 of them finished", "3 since 1.25 s virtual")
    older = {key: value for key, value in summary.items() if key not in told}
    assert "updates" in said(older), "a record from before there was any of it"
