"""The settings of an artefact's runs, from their configs: shared values, differing values, readings of the text."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from reports.records import Artefact, Run
from reports.tables import Column, Table

# Where a paper's text is ambiguous the choice is shown: key of the config -> what it decides.
READINGS = {
    "strategy.bound": "DSSP: whether s_U is enforced",
    "strategy.tag": "PSP: what a worker's counter counts",
    "strategy.aggregate": "backup workers: mean or sum of the gradients",
    "strategy.k_cap": "AdaSync: the largest K",
    "strategy.f0": "AdaSync: the loss at the beginning",
    "strategy.impl": "collectives: one message for all tensors, or one each",
    "strategy.average": "DS-Sync: when replicas are averaged",
    "strategy.parity": "DS-Sync: which steps are even",
    "strategy.evaluate": "DS-Sync: which replica is evaluated",
    "dataset.sharing": "whether each worker has a share of the samples, or all take from one order",
    "lr_clock": "what the learning rate's schedule counts",
    "async_gradient": "what a single gradient is divided by",
    "momentum": "whether the rate is inside the momentum",
}
SETTINGS = (
    ("model", "network"),
    ("dataset", "data"),
    ("batch_size", "batch a worker"),
    ("optimizer", "optimizer"),
    ("cluster.name", "cluster"),
    ("cluster.workers", "workers"),
    ("cluster.gradient_s", "seconds a gradient"),
    ("scenario.name", "delays"),
    ("epochs", "epochs"),
    ("max_updates", "updates"),
    ("max_time_s", "seconds"),
    ("precision", "precision"),
)
# Where data lie says nothing of the run, and how they are shared is a reading.
HIDDEN = frozenset({"root", "download", "file", "loaders", "vocab", "sharing"})
SHOWN = 8  # values of a setting that differs


def learned_with(config: Mapping[str, Any]) -> str:
    """The network and the data: `resnet-8 on glyphs10`."""
    model = config["model"]
    depth = f"-{model['depth']}" if "depth" in model else ""
    return f"{model['name']}{depth} on {config['dataset']['name']}"


def settings(artefact: Artefact) -> Table:
    """A row a setting: its value, or the values that it takes."""
    first = artefact.runs[0]
    rows: list[tuple[str, str]] = [
        ("engine", ", ".join(sorted({str(run.summary["engine"]) for run in artefact.runs}))),
        ("time", ", ".join(sorted({str(run.summary["time_kind"]) for run in artefact.runs}))),
        ("scale", artefact.scale),
        ("seeds", ", ".join(map(str, artefact.seeds))),
    ]
    learned = [run for run in artefact.runs if run.config.get("gradients", True)] or [first]
    alone = [run for run in artefact.runs if not run.config.get("gradients", True)]
    if alone and len(alone) < len(artefact.runs):
        rows.append(("runs", f"{len(learned)} with gradients, {len(alone)} of times alone"))
    elif alone:
        rows.append(("runs", f"{len(alone)} of times alone: nothing is learned"))
    else:
        rows.append(("runs", f"{len(learned)} with gradients"))
    chosen = artefact.runs if len(alone) == len(artefact.runs) else learned
    for key, name in SETTINGS:
        values = _distinct(chosen, key)
        if values and values != ["null"]:
            rows.append((name, _joined(values)))
    for key, about in READINGS.items():
        values = _distinct(artefact.runs, key)
        if values:
            rows.append((f"reading: {key}", f"{_joined(values)} ({about})"))
    return Table.of("How it was made", rows, [Column("setting", itemgetter(0)), Column("value", itemgetter(1))])


def _joined(values: Sequence[str]) -> str:
    more = f", and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return "; ".join(values[:SHOWN]) + more


def _distinct(runs: Sequence[Run], key: str) -> list[str]:
    """The values that runs have at a dotted key, in order, as text; [] where none has it."""
    values = {repr(value): value for run in runs for value in _at(run.config, key)}
    return list(dict.fromkeys(map(_text, values.values())))


def _at(config: Mapping[str, Any], key: str) -> Iterator[Any]:
    part: Any = config
    for name in key.split("."):
        if not isinstance(part, dict) or name not in part:
            return
        part = part[name]
    yield part


def _text(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(
            f"{key} {_text(entry)}"
            for key, entry in value.items()
            if key not in HIDDEN | {"name"} and entry not in (None, False, 0, 0.0, [], {}, "")
        )
        return f"{value['name']} ({inner})" if inner and "name" in value else inner or str(value.get("name", ""))
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
