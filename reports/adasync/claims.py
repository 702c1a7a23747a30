"""The paper's claims as numbers and regions.

Tolerances were fixed before anything was run: 1 % for a formula; 5 % for "strictly faster"; a point of test error for
"not worse". A claim of the kind "larger than" has no tolerance: its bound is 0 or 1.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise, product

from reports.adasync import learning
from reports.adasync.convex import measured
from reports.adasync.learning import ADASYNC, final_error, goals, mean_error, places, samples, time_to_loss
from reports.adasync.runtimes import bound, distributions, over_batch, speedups, times_of
from reports.claims import DERIVED, LEARNED, TIMED, claim
from reports.effects import Effect, of_difference, of_ratio
from reports.records import Artefact, Run, published
from reports.statistics import Sample
from syncline.timing import run_times

EXACT = 0.01
STRICTLY = 0.95
A_POINT = 1.0
DELAYS, VARIANTS = ("no_delay", "delay_20ms", "delay_50ms"), ("k_sync", "k_async")
KS = (1, 2, 4, 8)


def _name(*keys: str) -> str:
    names = published("adasync")["names"]
    return ", ".join(names[key] for key in keys)


# Run times.


def _exact(what: str, ratio: Sample) -> Effect:
    """A ratio to a formula that is an equality."""
    return Effect(what, ratio, 1.0 - EXACT, 1.0 + EXACT, digits=4)


def theorem1(fig6: Artefact) -> list[Effect]:
    """All sizes with exponential times; otherwise 10 workers, where the noise is below the tolerance."""
    found, known = speedups(fig6), distributions(fig6)
    chosen = [place for place in found if place[0] == "exponential" or place[1] == 10]
    if not chosen:
        raise LookupError("no runs of the exponential")
    effects = []
    for name, num_workers in chosen:
        ratio = found[name, num_workers] / run_times.sync_over_async(known[name], num_workers)
        effects.append(_exact(f"sync / async over Theorem 1, {_name(name)}, P = {num_workers}", ratio))
    return effects


def theorem2(table: Artefact) -> list[Effect]:
    found = times_of(table)
    effects = []
    for variant, k in product(("k_async", "k_sync"), KS):
        ratio = over_batch(found["exponential", k], variant)
        if ratio is None:
            raise LookupError(f"{variant}/K{k}")
        what = f"{_name(variant)} over its batch variant, over Theorem 2, K = {k}"
        effects.append(_exact(what, ratio / run_times.k_async_over_k_batch_async(k, 8)))
    return effects


def _formula(variant: str, *artefacts: Artefact) -> list[Effect]:
    effects = {}
    for artefact in artefacts:
        known = distributions(artefact)
        for (name, k), by_variant in times_of(artefact).items():
            formula = bound(variant, known[name], k, 8).seconds
            what = f"ours over the formula, {_name(name)}, K = {k}"
            effects[what] = _exact(what, by_variant[variant] / formula)
    return list(effects.values())


def ksync_formula(table: Artefact, fig7: Artefact) -> list[Effect]:
    return _formula("k_sync", table, fig7)


def kbatchasync_formula(table: Artefact, fig7: Artefact) -> list[Effect]:
    return _formula("k_batch_async", table, fig7)


def kasync_le_ksync(table: Artefact) -> list[Effect]:
    """Never slower, except for 1 % where the two are equal in law: the exponential, and K = P."""
    effects = []
    for (name, k), by_variant in times_of(table).items():
        at_most = STRICTLY if name == "shifted_exponential" and k < 8 else 1.0 + EXACT
        what = f"time of K-async / time of K-sync, {_name(name)}, K = {k}"
        effects.append(of_ratio(what, by_variant["k_async"], by_variant["k_sync"], at_most=at_most, digits=4))
    return effects


def delay_variability(fig8: Artefact) -> list[Effect]:
    """In the reading in which an epoch is as many updates whatever K is; in the other the signs are the same."""
    found = learning.times(fig8, "dealt")
    effects = []
    for variant, k, (less, more) in product(VARIANTS, KS[:-1], pairwise(DELAYS)):
        before, after = (learning.saving(found, delay, variant, k) for delay in (less, more))
        what = f"time saved over K = 8, {_name(variant)}, K = {k}: {_name(more)} - {_name(less)}, points"
        effects.append(of_difference(what, 100.0 * after, 100.0 * before, at_least=0.0, is_strict=True))
    return effects


def kasync_saves_more(fig8: Artefact) -> list[Effect]:
    found, effects = learning.times(fig8, "dealt"), []
    for delay, k in product(DELAYS, KS[:-1]):
        times = found[delay, "k_async", k], found[delay, "k_sync", k]
        what = f"time of K-async / time of K-sync, K = {k}, {_name(delay)}"
        effects.append(of_ratio(what, *times, at_most=1.0, digits=3, is_strict=True))
    return effects


# Learning.


def error_floor(fig2: Artefact, fig9: Artefact, fig10: Artefact) -> list[Effect]:
    """The largest K against the smallest."""
    found = measured(fig2)
    effects = []
    for variant, smallest in (("k_sync", 1), ("k_async", 1), ("k_batch_async", 2)):
        errors = found[variant, 8].error, found[variant, smallest].error
        what = f"convex: error left at K = 8 / at K = {smallest}, {_name(variant)}"
        effects.append(of_ratio(what, *errors, at_most=1.0, is_strict=True))
    learned = samples(fig9, final_error) | samples(fig10, final_error)
    for variant, delay in product(VARIANTS, DELAYS):
        large, small = (100.0 * learned[delay, variant, which] for which in ("K8", "K1"))
        what = f"test error at the end, K = 8 - K = 1, {_name(variant, delay)}, points"
        effects.append(of_difference(what, large, small, at_most=0.0, is_strict=True))
    return effects


def intermediate_k(fig9: Artefact, fig10: Artefact) -> list[Effect]:
    """Error against time as one number: the mean of the test error over the run, the same time for all K.

    Without delay K = 8 against each other K, with delays an intermediate K against each end, or against the rival that
    the key `rivals` names: `no_delay/k_sync`, `delay_20ms/k_sync/ends`. The intermediate one is K = 4 unless
    `delay_20ms/k_sync/middle` names K2.
    """
    effects = []
    for artefact, variant in ((fig9, "k_sync"), (fig10, "k_async")):
        errors = samples(artefact, mean_error)
        for delay in DELAYS:
            place = f"{delay}/{variant}"
            if delay == DELAYS[0]:
                best, rivals = "K8", artefact.rivals(place, ("K1", "K2", "K4"))
            else:
                best, *_ = artefact.rivals(f"{place}/middle", ("K4", "K2"))
                rivals = artefact.rivals(f"{place}/ends", ("K1", "K8"))
            for rival in rivals:
                own, other = (100.0 * errors[delay, variant, which] for which in (best, rival))
                what = f"mean test error, {_name(best)} - {_name(rival)}, {_name(variant, delay)}, points"
                effects.append(of_difference(what, own, other, at_most=0.0, is_strict=True))
    return effects


def adasync_fastest(fig11: Artefact) -> list[Effect]:
    """The given loss is what K = 8 ends at. A run that does not reach it counts with its whole time.

    AdaSync against each fixed K, or against the one that the key `rivals` names (`delay_20ms/k_sync: K4`).
    """
    found = places(fig11)
    effects = []
    for variant in VARIANTS:
        goal = goals(found, "delay_20ms", variant)
        reached = {which: fig11.sample(runs, _time_to(goal)) for (_, of, which), runs in found.items() if of == variant}
        fixed = [which for which in reached if which != ADASYNC]
        for rival in fig11.rivals(f"delay_20ms/{variant}", fixed):
            what = f"time to the training loss of K = 8: AdaSync / {_name(rival)}, {_name(variant)}"
            effects.append(of_ratio(what, reached[ADASYNC], reached[rival], at_most=1.0))
    return effects


def _time_to(goal: Mapping[int, float]) -> Callable[[Run], float]:
    return lambda run: time_to_loss(run, goal[run.seed])


def adasync_floor(fig11: Artefact) -> list[Effect]:
    errors = samples(fig11, final_error)
    adasync, largest = (100.0 * errors["delay_20ms", "k_async", which] for which in (ADASYNC, "K8"))
    what = "test error at the end, AdaSync on K-async - K = 8, points"
    return [of_difference(what, adasync, largest, at_most=A_POINT)]


FORMULAS = "The formulas are about the simulator's own model, so that only chance and the length of runs can differ."
CLUSTER = (
    "The paper's cluster is known except for its seconds a gradient, which are derived, and its noise, which is "
    "assumed."
)
SMALLER = (
    "Below scale paper the data, the network or the length are smaller: with few updates the largest K may not have "
    "come to its floor, and a network that fits its few images exactly has no floor of gradient noise."
)

LARGEST = ("*/K8",)

CLAIMS = (
    claim(theorem1, FORMULAS, "adasync/fig6", basis=DERIVED),
    claim(theorem2, FORMULAS, "adasync/table_runtime", basis=DERIVED),
    claim(ksync_formula, FORMULAS, "adasync/table_runtime", "adasync/fig7", basis=DERIVED),
    claim(kbatchasync_formula, FORMULAS, "adasync/table_runtime", "adasync/fig7", basis=DERIVED),
    claim(kasync_le_ksync, FORMULAS, "adasync/table_runtime", basis=DERIVED),
    claim(delay_variability, CLUSTER, "adasync/fig8", basis=TIMED),
    claim(kasync_saves_more, CLUSTER, "adasync/fig8", basis=TIMED),
    claim(error_floor, SMALLER, "adasync/fig2", "adasync/fig9", "adasync/fig10", basis=LEARNED, baseline=LARGEST),
    claim(intermediate_k, SMALLER, "adasync/fig9", "adasync/fig10", basis=LEARNED, baseline=LARGEST),
    claim(adasync_fastest, SMALLER, "adasync/fig11", basis=LEARNED, baseline=LARGEST),
    claim(adasync_floor, SMALLER, "adasync/fig11", basis=LEARNED, baseline=LARGEST),
)
