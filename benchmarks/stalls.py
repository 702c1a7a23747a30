"""Pauses between the pushes of many workers on few cores, over minutes, from the server's log."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.live_run import LiveRun
from syncline.records.events import read_events

WORKERS = 16


def report(seconds: float = 600.0) -> None:
    """ASP, where no worker waits for another: whatever holds one up is a stall."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("strategy=asp", f"cluster.workers={WORKERS}", "epochs=null", f"max_time_s={seconds}")
        run = LiveRun(Path(folder), *words, "eval_every_epochs=100")
        run.wait(timeout_s=2 * seconds + 60)
        log = read_events(run.folder / "events.arrow").to_pandas()
    pushed = log[log.kind == "pushed"]
    of_all = np.diff(np.sort(pushed["at"]))
    of_each = pushed.groupby("worker")["at"].apply(lambda at: np.diff(np.sort(at)))
    print(f"LeNet, ASP, {WORKERS} workers, {seconds:.0f} s: seconds between pushes: median, largest (goal: < 1 s)")
    print(f"  of all workers    {np.median(of_all):.3f}, {of_all.max():.3f}, n = {len(of_all):,}")
    within = np.concatenate(list(of_each))
    print(f"  of one worker     {np.median(within):.3f}, {within.max():.3f}, n = {len(within):,}")
