"""Event logs in memory, and what is recomputed from their rows alone."""

from collections import Counter
from itertools import pairwise

from syncline.progress import Totals
from syncline.records.rows import KINDS, Row

REPORTED_WITH_PUSH = ("started", "computed", "delayed", "dropped", "pulled")  # at times before that of the push


class Rows(list[Row]):
    """A log in memory."""

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self if row.kind in kinds]


def leads(rows: list[Row], num_workers: int) -> list[int]:
    """After each push, the lead of the fastest active worker over the slowest."""
    levels = dict.fromkeys(range(num_workers), 0)
    found = []
    for row in rows:
        if row.kind == "pushed":
            levels[row.worker] += 1
            found.append(max(levels.values()) - min(levels.values()))
        elif row.kind == "left":
            del levels[row.worker]
        elif row.kind == "joined":
            levels[row.worker] = min(levels.values(), default=0)
    return found


def computed_versions(rows: list[Row], number: int = 0) -> dict[int, int]:
    """push -> the version of this shard's block that it was computed at."""
    versions: dict[int, int] = {}
    chosen: dict[tuple[int, float], int] = {}  # (worker, iteration), where a pull rule chose
    for row in rows:
        if row.kind == "pulled":
            chosen[row.worker, row.value] = row.versions[number]
        elif row.kind == "pushed":
            versions[row.push] = chosen.get((row.worker, row.value), row.version)
    return versions


def recount(rows: Rows, num_workers: int, batch_size: int, first_count: int | None = None) -> Totals:
    """The totals, from the log alone."""
    totals = Totals(num_workers)
    totals.begin(first_count)
    computed_at = computed_versions(rows)
    applied = rows.of("applied")
    totals.time_s = applied[-1].at if applied else 0.0
    totals.updates = len({row.version for row in applied})
    totals.samples = batch_size * len(applied)
    found = Counter(row.version - 1 - computed_at[row.push] for row in applied)
    totals.staleness = [found[stale] for stale in range(max(found, default=-1) + 1)]
    totals.max_lead = max(leads(rows, num_workers), default=0)
    for row in applied:
        totals.used_by_worker[row.worker] += 1
    for row in rows.of("discarded"):
        totals.discarded_by_worker[row.worker] += 1
    for row in rows.of("dropped", "stale"):
        totals.interrupted_by_worker[row.worker] += 1
        totals.wasted_by_worker[row.worker] += row.because != "cancelled in its delay"
    for row in rows.of("waits_for"):
        totals.waits_for.append((row.at, row.version, int(row.value)))
    for row in rows.of("started"):
        totals.busy_s_by_worker[row.worker] += row.value
    for row, after in pairwise(rows):
        if row.kind == "computed" and after.kind != "stale":
            totals.loss_sum += row.value
            totals.loss_count += 1
    return totals


def check_rows(rows: list[Row], number: int = 0) -> None:
    """The rows agree with the table of records/events.py."""
    updates, pushes = 0, 0
    computed_at = computed_versions(rows, number)
    owners: dict[int, int] = {}
    for row in rows:
        assert row.kind in KINDS
        of_worker = row.kind in ("started", "computed", "dropped", "stale") or row.because in ("slow", "compute")
        assert row.shard == (-1 if of_worker else number), row
        assert (row.push >= 0) == (row.kind in ("pushed", "applied", "discarded")), row
        assert (row.worker >= 0) == (row.kind not in ("timer", "waits_for")), row
        if row.kind == "pushed":
            assert row.push == pushes
            assert computed_at[row.push] <= updates
            owners[row.push] = row.worker
            pushes += 1
        elif row.kind == "applied":
            assert row.version in (updates, updates + 1), "versions go up by one"
            updates = row.version
            assert (row.worker, row.value) == (owners[row.push], updates - 1 - computed_at[row.push])
        elif row.kind == "discarded":
            assert (row.worker, row.version, row.value) == (owners[row.push], computed_at[row.push], 0)
            assert row.because
        elif row.kind in ("granted", "held", "repeated", "interrupted"):
            assert (row.version, row.value) == (updates, 0)
            assert row.because
        elif row.kind == "waits_for":
            assert row.version == updates
            assert row.value >= 1
            assert row.because
        elif row.kind == "timer":
            assert (row.version, row.value, row.because) == (updates, 0, "")
        elif row.kind == "dropped":
            assert row.because in ("cancelled in its delay", "computed to the end")
        elif row.kind in ("joined", "left"):
            assert (row.version, row.value) == (-1, 0)
            assert bool(row.because) == (row.kind == "left")
        elif row.kind == "delayed":
            assert row.version == -1
            assert row.value > 0
            assert row.because in ("compute", "slow", "push", "pull")
    causal = [row.at for row in rows if row.kind not in REPORTED_WITH_PUSH]
    assert causal == sorted(causal)
