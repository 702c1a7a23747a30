"""Table 1: the scale of synchronisation, and its cost by the paper's model, the alpha-beta model and simulation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reports.dssync.text import published_step_s, text
from reports.records import Artefact
from reports.statistics import Sample, difference
from reports.tables import Column, Table
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.timing import collectives

KINDS = {"ps": "ps", "ring": "ring", "tree": "tree", "ds_sync": "ds_sync_ring", "ds_sync_tree": "ds_sync_tree"}
"""Row -> its name in Table 1 and in `collectives.SYNCHRONISATIONS`."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What the formulas need of a cluster."""

    num_workers: int
    gradient_s: float
    size_bytes: int
    tensors: int
    latency_s: float  # of a message
    seconds_a_byte: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Wire":
        cluster = config["cluster"]
        network = cluster["network"]
        seconds_a_byte = 8.0 / (network["bandwidth_gbps"] * 1e9)
        size, tensors = cluster["message_bytes"], cluster["message_tensors"]
        latency_s: float = network["latency_s"]
        return cls(cluster["workers"], cluster["gradient_s"][0], size, tensors, latency_s, seconds_a_byte)

    def cost_s(self, kind: str, num_workers: int, messages: int) -> float:
        """Seconds of one synchronisation in the alpha-beta model, in so many messages one after another."""
        size, latency_s, seconds_a_byte = self.size_bytes, messages * self.latency_s, self.seconds_a_byte
        group_size = DsSyncOptions().grid(num_workers)
        match kind:
            case "ps":
                return collectives.parameter_server_s(num_workers, 1, size, latency_s, seconds_a_byte)
            case "ring":
                return collectives.ring_s(num_workers, size, latency_s, seconds_a_byte)
            case "tree":
                return collectives.tree_s(num_workers, size, latency_s, seconds_a_byte)
            case "ds_sync":
                return collectives.grouped_ring_s(num_workers, group_size, size, latency_s, seconds_a_byte)
        sides = (group_size, num_workers // group_size)  # of the grid: rows at even steps, columns at odd ones
        return sum(collectives.tree_s(members, size, latency_s, seconds_a_byte) for members in sides) / 2.0


@dataclass(frozen=True, slots=True)
class Row:
    num_workers: int
    kind: str  # one of KINDS


def steps(artefact: Artefact) -> dict[int, dict[str, Sample]]:
    """Workers -> run -> seconds a step."""
    by_size: dict[int, dict[str, Sample]] = {}
    for (_, name), runs in artefact.by("workers", "collective").items():
        times = by_size.setdefault(runs[0].num_workers, {})
        times[name] = artefact.sample(runs, lambda run: run.seconds_an_update)
    return by_size


def table1(artefact: Artefact) -> Table:
    """Table 1, with seconds for the paper's cluster."""
    wire, times = Wire.of(artefact.runs[0].config), steps(artefact)

    def exchange(suffix: str) -> Callable[[Row], Sample | None]:
        """A step less the gradient."""
        return lambda row: difference(times[row.num_workers].get(f"{row.kind}{suffix}"), wire.gradient_s)

    def cost_s(row: Row) -> float:
        return collectives.overall_cost_s(KINDS[row.kind], row.num_workers, wire.size_bytes, wire.seconds_a_byte)

    def tensor_by_tensor_s(row: Row) -> float | None:
        return None if row.kind == "ps" else wire.cost_s(row.kind, row.num_workers, wire.tensors)

    def published_s(row: Row) -> float | None:
        return published_step_s("cifar10", row.num_workers, "bsp" if row.kind == "ring" else row.kind)

    columns: list[Column[Row]] = [
        Column("synchronisation", lambda row: f"W = {row.num_workers}, {text()['names'][row.kind]}"),
        Column("paper: scale", lambda row: collectives.synchronisation_scale(KINDS[row.kind], row.num_workers)),
        Column("paper: cost S D / B, s", cost_s, 2),
        Column("alpha-beta: one message, s", lambda row: wire.cost_s(row.kind, row.num_workers, 1), 3),
        Column("ours: one message, s", exchange(""), 3),
        Column("alpha-beta: a message a tensor, s", tensor_by_tensor_s, 3),
        Column("ours: a message a tensor, s", exchange("_naive"), 3),
        Column("ours: and uneven workers, s", exchange("_naive_uneven"), 3),
        Column("ours: step, a message a tensor, s", lambda row: times[row.num_workers].get(f"{row.kind}_naive"), 3),
        Column("paper: step (Table 4, CIFAR-10), s", published_s, 3),
    ]
    rows = [Row(num_workers, kind) for num_workers in times for kind in KINDS]
    return Table.of_artefact(artefact, "DS-Sync, Table 1", rows, columns, notes(artefact, wire))


def notes(artefact: Artefact, wire: Wire) -> list[str]:
    """What a reader must know to compare: cluster, model, spread."""
    first = artefact.runs[0]
    scales = "; ".join(f"{kind} {own['scale']}, {own['cost']}" for kind, own in text()["table1"].items())
    uneven = [run.config["cluster"]["jitter"] for run in artefact.runs if run.label.endswith("uneven")]
    uneven_about = f" (a gradient's time varies by {100 * uneven[0]['std']:g} %, assumed)" if uneven else ""
    about = {
        "engine": first.summary["engine"],
        "time": first.summary["time_kind"],
        "updates": first.config["max_updates"],
        "cluster": first.config["cluster"]["name"],
        "gradient_s": wire.gradient_s,
        "megabytes": wire.size_bytes / 1e6,
        "tensors": wire.tensors,
        "transfer_s": wire.size_bytes * wire.seconds_a_byte,
        "latency_ms": 1e3 * wire.latency_s,
        "scales": scales,
        "seeds": ", ".join(map(str, artefact.seeds)),
        "uneven": uneven_about,
    }
    return [note.format(**about) for note in text()["notes"]["table1"]]
