"""Runs of the AdaSync paper's experiments made by hand: times by a rule, curves by a rule, three seeds."""

from collections.abc import Callable, Mapping
from typing import Any

from written import RunInMemory, artefact_of, made_run

from reports.adasync.runtimes import VARIANTS, bound
from reports.records import Artefact
from syncline.timing import run_times
from syncline.timing.distributions import Distribution, Exponential, Pareto, ShiftedExponential

SEEDS = (0, 1, 2)
KS = (1, 2, 4, 8)
DELAYS = ("no_delay", "delay_20ms", "delay_50ms")
JITTERS: dict[str, tuple[dict[str, Any], Distribution]] = {
    "exponential": ({"name": "exponential", "mean": 1.0}, Exponential(1.0)),
    "shifted_exponential": ({"name": "shifted_exponential", "shift": 1.0, "scale": 1.0}, ShiftedExponential(1.0, 1.0)),
    "pareto": ({"name": "pareto", "minimum": 1.0, "shape": 3.0}, Pareto(1.0, 3.0)),
}


def noise(seed: int) -> float:
    """A little that differs between seeds: 0 to 0.2 %."""
    return 1.0 + 0.001 * seed


def timed(label: str, seed: int, jitter: dict[str, Any], workers: int, strategy: dict[str, Any], an_update_s: float):
    config = {"strategy": strategy, "cluster": {"workers": workers, "jitter": jitter}}
    return made_run(label, seed, config, {"time_s": 50 * an_update_s, "updates": 50})


def fig6_runs(factor: Callable[[str, int], float] = lambda name, workers: 1.0) -> list[RunInMemory]:
    """Times by Theorem 1, times `factor`."""
    runs = []
    for name, workers in (("exponential", 2), ("exponential", 10), ("pareto", 10), ("pareto", 2)):
        jitter, of = JITTERS[name]
        for seed in SEEDS:
            ratio = factor(name, workers) * noise(seed) * run_times.sync_over_async(of, workers)
            place = f"{name}/P{workers}"
            runs.append(timed(f"{place}/sync", seed, jitter, workers, {"name": "bsp"}, 0.5 * ratio))
            runs.append(timed(f"{place}/async", seed, jitter, workers, {"name": "asp"}, 0.5))
    return runs


def made_fig6(factor: Callable[[str, int], float] = lambda name, workers: 1.0) -> Artefact:
    return artefact_of("adasync/fig6", fig6_runs(factor))


def made_times(
    artefact: str, names: tuple[str, ...], factor: Callable[[str, str, int], float] = lambda name, variant, k: 1.0
) -> Artefact:
    """Every variant exactly as the paper's formula says, times factor(distribution, variant, K); 9 s without one."""
    runs = []
    for name in names:
        jitter, of = JITTERS[name]
        for variant in VARIANTS:
            for k in KS:
                formula = bound(variant, of, k, 8)
                seconds = 9.0 if formula.claim == "unproved" else factor(name, variant, k) * formula.seconds
                strategy = {"name": variant, "k": k}
                for seed in SEEDS:
                    label = f"{name}/{variant}/K{k}"
                    runs.append(timed(label, seed, jitter, 8, strategy, noise(seed) * seconds))
    return artefact_of(f"adasync/{artefact}", runs)


def made_fig8(an_update_s: Callable[[str, str, int], float]) -> Artefact:
    """1,000 updates of 32 K images of 50,000 each."""
    runs = []
    for delay in DELAYS:
        for variant in ("k_sync", "k_async"):
            for k in KS:
                config = {
                    "strategy": {"name": variant, "k": k},
                    "cluster": {"workers": 8},
                    "batch_size": 32,
                    "dataset": {"train_size": None},
                }
                for seed in SEEDS:
                    time_s = 1000 * noise(seed) * an_update_s(delay, variant, k)
                    summary = {"time_s": time_s, "updates": 1000, "epochs": 1000 * 32 * k / 50_000}
                    runs.append(made_run(f"{delay}/{variant}/K{k}", seed, config, summary))
    return artefact_of("adasync/fig8", runs)


def made_convex(artefact: str, left: Callable[[str, int], float]) -> Artefact:
    """Test losses that fall from 2.3 by half a second's step to 2 + left(variant, K); the minimum is 2."""
    runs = [
        made_run("minimum", seed, {"strategy": {"name": "bsp"}}, {}, [{"time_s": 9.0, "loss": 2.0}]) for seed in SEEDS
    ]
    for variant, ks in (("k_sync", KS), ("k_async", KS), ("k_batch_async", KS[1:])):
        for k in ks:
            config = {"strategy": {"name": variant, "k": k}}
            for seed in SEEDS:
                floor = noise(seed) * left(variant, k)
                rows = [
                    {"time_s": float(at), "loss": 2.0 + max(0.3 * 0.5**at, floor), "accuracy": 0.5 if at else 0.1}
                    for at in range(20)
                ]
                runs.append(made_run(f"{variant}/K{k}", seed, config, {}, rows))
    return artefact_of(f"adasync/{artefact}", runs)


Course = Callable[[str, str, str, float], float]  # (delay, variant, which, time) -> a height


def made_learning(
    artefact: str,
    labels: list[tuple[str, str, str]],
    error: Course,
    loss: Course,
    report: Mapping[str, Any] | None = None,
    interval: float = 0.4,
) -> Artefact:
    """Ten virtual seconds with an evaluation a second; the training loss is unknown at the first.

    AdaSync could change K after twice its interval; the fixed losses are reached after 1 s or later.
    """
    config = {"cluster": {"workers": 8}, "strategy": {"interval": interval, "f0": "interval"}}
    runs = []
    for delay, variant, which in labels:
        for seed in SEEDS:
            rows = [
                {
                    "time_s": float(at),
                    "epoch": float(at),
                    "updates": 10 * at,
                    "accuracy": 1.0 - noise(seed) * error(delay, variant, which, at),
                    "train_loss": noise(seed) * loss(delay, variant, which, at) if at else None,
                }
                for at in range(11)
            ]
            summary = {
                "time_s": 10.0,
                "updates": 100,
                "epochs": 10.0,
                "mean_staleness": 0.5,
                "waits_for": [[0.0, 0, 2], [4.0, 40, 5]],
            }
            runs.append(made_run(f"{delay}/{variant}/{which}", seed, config, summary, rows))
    return artefact_of(f"adasync/{artefact}", runs, report)


def fixed(variant: str) -> list[tuple[str, str, str]]:
    return [(delay, variant, f"K{k}") for delay in DELAYS for k in KS]


def with_adasync() -> list[tuple[str, str, str]]:
    variants = ("k_sync", "k_async")
    return [("delay_20ms", variant, which) for variant in variants for which in ("K1", "K2", "K4", "K8", "adasync")]
