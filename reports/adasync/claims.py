"""The numbers of what AdaSync claims; published/adasync.yaml has the claims, docs/findings/declared.md the regions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

from reports.adasync import learning
from reports.adasync.convex import measured
from reports.adasync.learning import (
    Place,
    final_error,
    is_fixed,
    is_still_fixed,
    mean_error,
    places,
    restricted_seconds,
)
from reports.adasync.runtimes import bound, distributions, over_batch, speedups, times_of
from reports.effects import Effect, above, around, at_most, below, of_difference, of_ratio
from reports.records import Artefact, published
from reports.statistics import Sample
from syncline.timing import run_times

EXACT = around(1.0, 0.01, "1 % of chance")
NOT_LONGER, STRICTLY = at_most(1.01, "1 % of chance"), at_most(0.95, "5 % less")
DELAYS, VARIANTS = ("no_delay", "delay_20ms", "delay_50ms"), ("k_sync", "k_async")
KS = (1, 2, 4, 8)
DELAY = "delay_20ms"  # of Figure 11
STARTS = ("adasync", "adasync_K1", "adasync_K4")  # AdaSync's K_0: 2 unless the experiment's file names another one


def _name(*keys: str) -> str:
    names = published("adasync")["names"]
    return ", ".join(names[key] for key in keys)


# Run times.


def _exact(what: str, ratio: Sample) -> Effect:
    """A ratio to a formula that is an equality."""
    return Effect(what, ratio, EXACT, digits=4)


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
        region = STRICTLY if name == "shifted_exponential" and k < 8 else NOT_LONGER
        what = f"time of K-async / time of K-sync, {_name(name)}, K = {k}"
        sides = by_variant["k_async"], by_variant["k_sync"]
        effects.append(of_ratio(what, *sides, region, digits=4))
    return effects


def delay_variability(fig8: Artefact) -> list[Effect]:
    """In the reading in which an epoch is as many updates whatever K is; in the other the signs are the same."""
    found = learning.times(fig8, "dealt")
    effects = []
    for variant, k, (less, more) in product(VARIANTS, KS[:-1], pairwise(DELAYS)):
        before, after = (learning.saving(found, delay, variant, k) for delay in (less, more))
        what = f"time saved over K = 8, {_name(variant)}, K = {k}: {_name(more)} - {_name(less)}, points"
        effects.append(of_difference(what, 100.0 * after, 100.0 * before, above(0.0)))
    return effects


def kasync_saves_more(fig8: Artefact) -> list[Effect]:
    found, effects = learning.times(fig8, "dealt"), []
    for delay, k in product(DELAYS, KS[:-1]):
        times = found[delay, "k_async", k], found[delay, "k_sync", k]
        what = f"time of K-async / time of K-sync, K = {k}, {_name(delay)}"
        effects.append(of_ratio(what, *times, below(1.0), digits=3))
    return effects


# Learning.


def fine_tuned_and_fixed(fig11: Artefact, variants: Sequence[str] = VARIANTS) -> list[str]:
    """The rows of AdaSync from its fine-tuned K_0, and of each fixed K."""
    fixed = [f"K{k}" for k in KS]
    return [
        f"{DELAY}/{variant}/{which}" for variant in variants for which in (_from_fine_tuned(fig11, variant), *fixed)
    ]


def _from_fine_tuned(fig11: Artefact, variant: str) -> str:
    """ "The initial values of K are fine-tuned" (section 6.1; both are lost): `rivals` names `delay_20ms/k_sync/start`.

    AdaSync from K = 2 where it names none.
    """
    return fig11.rivals(f"{DELAY}/{variant}/start", STARTS)[0]


def error_floor(fig2: Artefact, fig9: Artefact, fig10: Artefact) -> list[Effect]:
    """The largest K against the smallest: what lies between neighbours may be less than the noise of a few seeds."""
    found = measured(fig2)
    effects = []
    for variant, smallest in (("k_sync", 1), ("k_async", 1), ("k_batch_async", 2)):
        errors = found[variant, 8].error, found[variant, smallest].error
        what = f"convex: error left at K = 8 / at K = {smallest}, {_name(variant)}"
        effects.append(of_ratio(what, *errors, below(1.0)))
    learned = fig9.samples(final_error, places(fig9)) | fig10.samples(final_error, places(fig10))
    for variant, delay in product(VARIANTS, DELAYS):
        large, small = (learned[delay, variant, which] for which in ("K8", "K1"))
        what = f"test error at the end, K = 8 - K = 1, {_name(variant, delay)}, points"
        effects.append(of_difference(what, large, small, below(0.0)))
    return effects


def intermediate_k(fig9: Artefact) -> list[Effect]:
    """Which K is best with delays is lost in our text.

    Error against time as one number: the mean of the test error over the run, the same time for all K. Without delay
    K = 8 against each other K, or against the rival that the key `rivals` names (`no_delay/k_sync`).
    """
    errors, place = fig9.samples(mean_error, places(fig9)), "no_delay/k_sync"
    others = fig9.rivals(place, ("K1", "K2", "K4"))
    largest = [_less_error(errors, DELAYS[0], "k_sync", "K8", other) for other in others]
    return [*largest, *_between(fig9, "k_sync")]


def intermediate_k_async(fig10: Artefact) -> list[Effect]:
    """The trend is that with delays an intermediate K is best. "Similar" does not ask that without delay K = 8 is."""
    return _between(fig10, "k_async")


def _between(artefact: Artefact, variant: str) -> list[Effect]:
    """With each delay an intermediate K against either end, or against the one that `rivals` names (`.../ends`).

    The intermediate one is K = 4 unless `delay_20ms/k_sync/middle` names K2.
    """
    errors, effects = artefact.samples(mean_error, places(artefact)), []
    for delay in DELAYS[1:]:
        place = f"{delay}/{variant}"
        middle, *_ = artefact.rivals(f"{place}/middle", ("K4", "K2"))
        ends = artefact.rivals(f"{place}/ends", ("K1", "K8"))
        effects += [_less_error(errors, delay, variant, middle, end) for end in ends]
    return effects


def _less_error(errors: Mapping[Place, Sample], delay: str, variant: str, which: str, rival: str) -> Effect:
    what = f"mean test error, {_name(which)} - {_name(rival)}, {_name(variant, delay)}, points"
    return of_difference(what, errors[delay, variant, which], errors[delay, variant, rival], below(0.0))


def adasync_fastest(fig11: Artefact) -> list[Effect]:
    """As fast is not faster. Restricted mean times to a training loss that is fixed beforehand (`targets`:
    `delay_20ms/k_sync`), of AdaSync from its fine-tuned K_0 against each fixed K, or against the one that the key
    `rivals` names (`delay_20ms/k_sync: K4`). No values where AdaSync is there before K could change: it is then a run
    of the fixed K_0, and the target tells nothing of adapting.
    """
    effects = []
    for variant in VARIANTS:
        place = f"{DELAY}/{variant}"
        seconds = restricted_seconds(fig11, DELAY, variant)
        adasync = _from_fine_tuned(fig11, variant)
        is_too_early = is_still_fixed(places(fig11)[DELAY, variant, adasync][0], seconds.times[adasync])
        for rival in fig11.rivals(place, list(filter(is_fixed, seconds.times))):
            what = f"time to the fixed training loss, {_name(adasync)} / {_name(rival)}, {_name(variant)}"
            sides = seconds.pair(adasync, rival)
            if is_too_early:
                early, other = sides
                sides = replace(early, flaw="AdaSync is there before K could change"), other
            effects.append(of_ratio(what, *sides, below(1.0)))
    return effects


def adasync_floor(fig11: Artefact) -> list[Effect]:
    """On K-async: the test error at the end against each fixed K; the trade-off is the mean of the test error over the
    run.
    """
    adasync, found = _from_fine_tuned(fig11, "k_async"), learning.rows(fig11, DELAY, "k_async")
    ends, means = (fig11.samples(measure, found) for measure in (final_error, mean_error))
    compared = [("at the end", ends, rival) for rival in found if is_fixed(rival)] + [("over the run", means, "K8")]
    return [
        of_difference(
            f"test error {when}, {_name(adasync)} on K-async - {_name(rival)}, points",
            errors[adasync],
            errors[rival],
            below(0.0),
        )
        for when, errors, rival in compared
    ]
