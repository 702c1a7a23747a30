"""Plans with records in every state, written without making a run."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.records.plans import plan_path
from syncline.records.writer import RecordWriter

TRACE = """Traceback (most recent call last):
  File "run.py", line 1, in simulate
    raise DataMissingError(path)
syncline.datasets.errors.DataMissingError: cifar10 not found: no data
  in this folder
"""


def identity_of(seed: int) -> str:
    return f"asp-timing-digits-s{seed}-{seed:010x}"


def write_plan(results: Path, stem: str, seeds: Sequence[int], labels: Sequence[str] = ("a",), **others: Any) -> Path:
    """A plan of these seeds, labels in turn."""
    path = plan_path(results, stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {seed: labels[seed % len(labels)] for seed in seeds}
    runs = [
        {"label": label, "seed": seed, "identity": identity_of(seed), "overrides": [f"seed={seed}"]}
        for seed, label in rows.items()
    ]
    name, _, scale = stem.rpartition("-")
    content = {"name": name.replace("-", "/"), "scale": scale, "command": [], "report": {}, "runs": runs}
    path.write_text(json.dumps({**content, **others}))
    return path


def summary() -> dict[str, Any]:
    """Of a run that learned something in a virtual second."""
    best = {"value": 0.5, "time_s": 1.0, "epoch": 1.0, "updates": 10}
    return {
        "status": "finished",
        "ended_by": "epochs",
        "time_s": 1.0,
        "time_kind": "virtual",
        "updates": 10,
        "seconds_per_update": 0.1,
        "samples": 320,
        "epochs": 1.0,
        "gradients_used": 10,
        "gradients_discarded": 0,
        "gradients_interrupted": 0,
        "gradients_wasted": 0,
        "used_by_worker": [3, 3, 2, 2],
        "mean_staleness": 0.0,
        "metric": "accuracy",
        "final": {"accuracy": 0.5},
        "best": {"accuracy": best},
        "target": {"metric": "accuracy", "value": None, "time_s": None},
        "wall_s": 1.0,
    }


def finish(results: Path, seed: int, wall_s: float = 10.0, **others: Any) -> Path:
    with RecordWriter(results / identity_of(seed), {"seed": seed, "epochs": 1.0}, with_events=False) as record:
        record.evaluation({"time_s": 0.5, "accuracy": 0.25})
        record.evaluation({"time_s": 1.0, "accuracy": 0.5})
        record.finish({**summary(), "wall_s": wall_s, **others})
    return results / identity_of(seed)


def fail(results: Path, seed: int, trace: str = TRACE) -> Path:
    with RecordWriter(results / identity_of(seed), {"seed": seed}, with_events=False) as record:
        record.fail(trace)
    return results / identity_of(seed)


def interrupt(results: Path, seed: int) -> Path:
    with RecordWriter(results / identity_of(seed), {"seed": seed}, with_events=False):
        pass
    return results / identity_of(seed)


def lock(results: Path, seed: int, **changes: Any) -> Path:
    """As of an owner on another host, alive as far as can be seen, for a minute."""
    owner = {"host": "far-away", "pid": 7, "born": 1, "since": time.time() - 60, "silent_s": 0.0}
    path = results / f"{identity_of(seed)}.lock"
    path.write_text(json.dumps(owner | changes))
    return path


def lock_of_the_dead(results: Path, seed: int) -> Path:
    process = subprocess.Popen(["true"])
    process.wait()
    return lock(results, seed, host=socket.gethostname(), pid=process.pid)


def age(path: Path, seconds: float) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path
