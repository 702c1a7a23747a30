"""Exact recurrences of push and update times from given durations: an oracle for the simulator.

`durations_s[p, i]` is the duration of the i-th mini-batch that worker p begins, whether it completes it or is
interrupted (`first_compute_s`); all workers begin at time 0 and messages take no time. A time is the result of
the same additions, now + duration, in the same order as in the simulator, so that it has the same bits. (Rounding never
puts a longer duration before a shorter one, so that the k-th smallest may be taken before adding.) Several pushes at
one instant make no difference, except in K-batch-sync and K-async: there it may affect later times which of them an
update takes; the simulator takes first those whose mini-batch began first, these functions any.
"""

import numpy as np

from syncline.timing.cluster import Cluster
from syncline.timing.distributions import Array


def first_compute_s(cluster: Cluster, num: int) -> Array:
    """Seconds of every worker's first `num` >= 0 gradients, including injected delays, [workers, num].

    Column i is what the i-th call of `compute_s` returns, in every bit; the streams do not advance.
    """
    gradient, delay = cluster.draw_computes(0, num)
    return gradient + delay


def bsp_updates_s(durations_s: Array) -> Array:
    """T_{i+1} = T_i + max over p of X[p, i]; [iterations].

    Source: dssp.txt, section I-A.1.
    """
    return np.cumsum(durations_s.max(axis=0))


def asp_pushes_s(durations_s: Array) -> Array:
    """Time of each worker's i-th push without waiting, [workers, iterations]; each push is an update.

    Source: dssp.txt, section I-A.2.
    """
    return np.cumsum(durations_s, axis=1)


def ssp_pushes_s(durations_s: Array, staleness: int) -> Array:
    """Time of each worker's i-th push under SSP(s), [workers, iterations]; each push is an update.

        F[p, i] = max(F[p, i-1], max over q of F[q, i-1-s]) + X[p, i]

    After i pushes p continues while i - min t <= s: once the slowest has made i - s pushes, the last of which is number
    i-1-s from 0. s = 0 gives BSP's times.

    Args:
        durations_s: [workers, iterations].
        staleness: s >= 0.

    Source: dssp.txt, section I-A.3.
    """
    assert staleness >= 0
    by_iteration = np.ascontiguousarray(durations_s.T)
    pushes = np.empty_like(by_iteration)
    all_pushed = np.empty(len(by_iteration))
    free = np.zeros(by_iteration.shape[1])  # when a worker may begin
    for i, seconds in enumerate(by_iteration):
        if i > staleness:
            free = np.maximum(free, all_pushed[i - 1 - staleness])
        free = np.add(free, seconds, out=pushes[i])
        all_pushed[i] = free.max()
    return pushes.T


def every_kth_s(pushes_s: Array, k: int = 1) -> Array:
    """Times of the updates of every k-th push, from any worker, [updates].

    k = 1 gives ASP's and SSP's updates from their pushes. It ends with the last push that the given ones settle: a
    worker's pushes beyond the given ones are later than its last, so those up to the earliest last one are all known.

    Args:
        pushes_s: [workers, iterations], rising in each row.
        k: K >= 1.
    """
    assert k >= 1
    known_until = pushes_s[:, -1].min()
    return np.sort(pushes_s[pushes_s <= known_until])[k - 1 :: k]


def k_batch_async_updates_s(durations_s: Array, k: int) -> Array:
    """Every K-th push of workers that never wait, [updates]; k >= 1 may exceed the workers. k = 1 is ASP.

    Source: adasync.txt, section 2.2.
    """
    return every_kth_s(asp_pushes_s(durations_s), k)


def k_sync_updates_s(durations_s: Array, k: int) -> Array:
    """T_{i+1} = T_i + the K-th smallest of X[:, i], as all workers start again at an update; [iterations].

    k = workers is BSP.

    Args:
        durations_s: [workers, iterations].
        k: K, 1 .. workers.

    Source: adasync.txt, section 2.2.
    """
    assert 1 <= k <= len(durations_s)
    return np.cumsum(np.partition(durations_s, k - 1, axis=0)[k - 1])


def k_batch_sync_updates_s(durations_s: Array, k: int) -> Array:
    """Every K-th push, at which all workers are interrupted and start again; [updates].

    It ends where a worker might need a duration that is not given.

    Args:
        durations_s: [workers, iterations].
        k: K >= 1, may exceed the workers.

    Source: adasync.txt, section 2.2.
    """
    assert k >= 1
    num_workers, iterations = durations_s.shape
    rows = np.arange(num_workers)[:, None]
    begun = np.zeros(num_workers, dtype=np.int64)  # mini-batches of earlier updates
    ahead = min(k, 2 + 2 * k // num_workers)  # pushes of each worker that are considered; grows if too few
    now, updates = 0.0, []
    while begun.max() + ahead <= iterations:
        pushes = durations_s[rows, begun[:, None] + np.arange(ahead)]
        pushes[:, 0] += now
        pushes = np.cumsum(pushes, axis=1)
        used = np.argpartition(pushes, k - 1, axis=None)[:k]
        last = used[np.argmax(pushes.flat[used])]
        if ahead < k and pushes[:, -1].min() < pushes.flat[last]:
            ahead = min(k, 2 * ahead)
            continue
        now = float(pushes.flat[last])
        updates.append(now)
        begun += np.bincount(used // ahead, minlength=num_workers) + 1
        begun[last // ahead] -= 1  # it has pushed, and begun nothing that could be interrupted
    return np.array(updates)


def k_async_updates_s(durations_s: Array, k: int) -> Array:
    """The K-th push of those that wait for an update, at which these K workers start again; [updates].

    It ends with the first update after which a worker needs a duration that is not given.

    Args:
        durations_s: [workers, iterations].
        k: K, 1 .. workers.

    Source: adasync.txt, section 2.2.
    """
    num_workers, iterations = durations_s.shape
    assert 1 <= k <= num_workers
    begun = np.ones(num_workers, dtype=np.int64)
    pushes = durations_s[:, 0].copy()  # each worker's next push, or the one that waits
    updates = []
    while True:
        used = np.argpartition(pushes, k - 1)[:k]
        now = pushes[used].max()
        updates.append(now)
        if begun[used].max() == iterations:
            return np.array(updates)
        pushes[used] = now + durations_s[used, begun[used]]
        begun[used] += 1
