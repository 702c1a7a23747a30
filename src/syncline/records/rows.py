"""The rows of a run's event log: one function makes each kind. The file is that of records/events.py.

Rows have the same columns, whatever their kind. Of a kind that says nothing in a column it is -1, 0, or empty.

| kind | at (seconds) | version | value |
|---|---|---|---|
| started | the worker begins a gradient | it is computed on | seconds it will take |
| computed | the gradient is complete | computed on | loss |
| pushed | the push arrived | its tag: computed on | the worker's own count of gradients, from 0 |
| averaged | the replicas of the worker and of a peer became their mean | after it | the peer |
| applied | an update included the push | after the update | staleness |
| discarded | the push will never be applied | computed on | |
| granted | the worker may proceed | granted | |
| held | the worker must wait | current | |
| repeated | the worker may proceed with the version it has | current | |
| interrupted | the worker is to cancel its gradient | current | |
| dropped | the gradient is cancelled | computed on | seconds not computed |
| stale | the push arrived after an interrupt | computed on | |
| pulled | the worker's blocks are chosen, with `versions` | the oldest | its number, from 0 |
| timer | a timer of the strategy expires | current | |
| waits_for | an update waits for this number of gradients from now on | current | the number |
| joined | the worker is present (again) | | |
| left | the worker is gone | | |
| delayed | an injected delay begins, `because` of what | | seconds |
| resumed | the run continues from a checkpoint | current | 1 if the worker is held, else 0 |

`pulled` is logged where a worker does not wait for all blocks. In a run of real processes each shard logs it with the
push, with the version of its own block; there a push carries its worker's tag, which may be newer than the blocks were.
Where there are asynchronous peers, each replica has versions of its own, one for each averaging and each step;
`averaged` has the worker's and the peer's in `versions`, which order what happened to both.
Only runs of real processes log `resumed`, and `delayed` but for collectives in virtual time. In real runs
`started` and `computed` are logged with the push: they are missing where a worker was killed or its push cancelled.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One line of a log."""

    at: float
    kind: str
    worker: int = -1
    shard: int = -1
    push: int = -1
    version: int = -1
    value: float = 0.0
    because: str = ""
    versions: Sequence[int] = ()  # of each shard's block, of `pulled`; of both replicas, of `averaged`


Log = Callable[[Row], None]
"""Receives the rows of a run."""

KINDS = (
    *("started", "computed", "pushed", "averaged", "applied"),
    *("discarded", "granted", "held", "repeated", "interrupted"),
    *("dropped", "stale", "pulled", "timer", "waits_for", "joined", "left", "delayed", "resumed"),
)


def started(at: float, worker: int, version: int, duration_s: float, because: str) -> Row:
    return Row(at, "started", worker, version=version, value=duration_s, because=because)


def computed(at: float, worker: int, version: int, loss: float) -> Row:
    return Row(at, "computed", worker, version=version, value=loss)


def pushed(at: float, worker: int, shard: int, push: int, tag: int, iteration: int) -> Row:
    return Row(at, "pushed", worker, shard, push, tag, iteration)


def averaged(at: float, worker: int, peer: int, versions: tuple[int, int]) -> Row:
    """`versions`: of the worker's replica and of the peer's, after it."""
    return Row(at, "averaged", worker, version=versions[0], value=peer, versions=versions)


def applied(at: float, worker: int, shard: int, push: int, version: int, staleness: int, because: str) -> Row:
    return Row(at, "applied", worker, shard, push, version, staleness, because)


def discarded(at: float, worker: int, shard: int, push: int, version: int, because: str) -> Row:
    return Row(at, "discarded", worker, shard, push, version, because=because)


def answer(at: float, kind: str, worker: int, shard: int, version: int, because: str) -> Row:
    """Of the kinds granted, held, repeated, interrupted."""
    return Row(at, kind, worker, shard, version=version, because=because)


def dropped(at: float, worker: int, because: str, version: int = -1, not_computed_s: float = 0.0) -> Row:
    return Row(at, "dropped", worker, version=version, value=not_computed_s, because=because)


def stale(at: float, worker: int, version: int) -> Row:
    return Row(at, "stale", worker, version=version)


def pulled(at: float, worker: int, shard: int, number: int, versions: Sequence[int]) -> Row:
    """Of all shards (shard -1), or as one of them has received it."""
    return Row(at, "pulled", worker, shard, version=min(versions), value=number, versions=tuple(versions))


def timer(at: float, shard: int, version: int) -> Row:
    return Row(at, "timer", shard=shard, version=version)


def waits_for(at: float, shard: int, version: int, count: int, because: str) -> Row:
    return Row(at, "waits_for", shard=shard, version=version, value=count, because=because)


def joined(at: float, worker: int, shard: int) -> Row:
    return Row(at, "joined", worker, shard)


def left(at: float, worker: int, shard: int, because: str) -> Row:
    return Row(at, "left", worker, shard, because=because)


def delayed(at: float, worker: int, seconds: float, what: str, shard: int = -1) -> Row:
    """`what` is delayed: compute, slow, or the push to or pull from this shard."""
    return Row(at, "delayed", worker, shard, value=seconds, because=what)


def resumed(at: float, worker: int, shard: int, version: int, is_held: bool) -> Row:
    return Row(at, "resumed", worker, shard, version=version, value=float(is_held))
