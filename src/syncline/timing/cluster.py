"""Clusters (workers, their speeds, the network) and scenarios (injected delays and slow-downs).

A profile may be a paper's cluster, in seconds a gradient, independently of the size of the model that is trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from syncline.checks import Checked, check, ranged
from syncline.rounds import SINGLE, Rounds
from syncline.timing.distributions import (
    Array,
    Constant,
    Distribution,
    Occasional,
    OptionalDistribution,
    Remembering,
    distribution,
    optional,
)
from syncline.timing.draws import Draws
from syncline.timing.network import Network, NetworkConfig


@dataclass(frozen=True)
class ClusterConfig(Checked):
    name: str = "laptop"
    workers: int = ranged(4, "in 1 .. 100,000")  # P
    shards: int = ranged(1, "in 1 .. 10,000")  # S: parameter servers, each with a contiguous block of the weights
    # mean seconds of a gradient; worker p has entry p mod length
    gradient_s: list[float] = field(default_factory=lambda: [0.02])
    jitter: OptionalDistribution = None  # factor on gradient_s, drawn for each gradient; None: 1
    network: NetworkConfig = field(default_factory=NetworkConfig)
    # weights or gradients on the wire, all blocks; None: 4 bytes a parameter
    message_bytes: int | None = ranged(None, "in 0 .. 1,000,000,000,000")
    # shares of a gradient's time after which 0, 1/K, ..., K/K of its elements are ready, from the end; linear between
    ready: list[float] = field(default_factory=lambda: [0.33, 1.0])
    # tensors that impl=naive sends one by one; None: the model's parameter tensors
    message_tensors: int | None = ranged(None, ">= 1")
    # seconds for which a shard is busy with each push while others wait, or a member of a collective with the mean
    update_s: float = ranged(0.0, ">= 0")
    measured_workers: int | None = ranged(None, ">= 1")  # of a profile of measured workers; more workers repeat them

    _where = "cluster"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_valid = bool(self.gradient_s) and all(0 < seconds < float("inf") for seconds in self.gradient_s)
        check(is_valid, "cluster.gradient_s must be a list of seconds > 0", self.gradient_s)
        ascends = all(low <= high for low, high in pairwise([0.0, *self.ready]))
        is_valid = len(self.ready) >= 2 and ascends and self.ready[-1] == 1
        check(is_valid, "cluster.ready must be two or more ascending shares in [0, 1], the last one 1", self.ready)
        object.__setattr__(self, "jitter", optional("cluster.jitter", self.jitter))

    def ready_after(self, share: float) -> float:
        """The share of a gradient's time after which this share of its elements, from the end, is ready."""
        return float(np.interp(share, np.linspace(0.0, 1.0, len(self.ready)), self.ready))

    @property
    def extrapolation(self) -> str:
        """One line that says so, if there are more workers than were measured; else empty."""
        measured = self.measured_workers
        if measured is None or self.workers <= measured:
            return ""
        return f"cluster={self.name} extrapolates: {measured} workers were measured, {self.workers} repeat them in turn"


@dataclass(frozen=True)
class ScenarioConfig:
    """What is injected on top of the cluster. A delay is a distribution of seconds, with `probability` (default 1)."""

    name: str = "none"
    compute_delay: OptionalDistribution = None  # added to every gradient of the delayed workers
    delayed_workers: list[int] = field(default_factory=list)  # by number; none: all
    push_delay: OptionalDistribution = None  # added to every push message (worker and shard)
    pull_delay: OptionalDistribution = None  # added to every pull response (worker and shard)
    slow: dict[int, float] = field(default_factory=dict)  # worker -> factor >= 1 on its compute time; others 1
    slow_shards: dict[int, float] = field(default_factory=dict)  # shard -> seconds >= 0 on each pull response; others 0
    up: OptionalDistribution = None  # seconds for which a worker runs until it is lost; None: to the end
    down: OptionalDistribution = None  # seconds until it is there again
    # {worker: [when it is lost, when it is there again, when it is lost, ...]} in seconds; in place of these
    absences: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("up", "down"):
            object.__setattr__(self, key, optional(f"scenario.{key}", getattr(self, key)))
        rule = "scenario.up and scenario.down must both be set, or both be null"
        check((self.up is None) == (self.down is None), rule, self.down if self.up is None else self.up)
        object.__setattr__(self, "absences", _absences(self.absences))
        alone = not self.absences or self.up is None
        check(alone, "scenario.absences goes without scenario.up and scenario.down", self.absences)
        for key in ("compute_delay", "push_delay", "pull_delay"):
            object.__setattr__(self, key, optional(f"scenario.{key}", getattr(self, key), _delay))
        differ = len(set(self.delayed_workers)) == len(self.delayed_workers)
        is_valid = differ and all(worker >= 0 for worker in self.delayed_workers)
        check(is_valid, "scenario.delayed_workers must be different workers >= 0", self.delayed_workers)
        for worker, factor in self.slow.items():
            is_wrong = worker < 0 or not factor >= 1
            check(not is_wrong, "scenario.slow must map workers >= 0 to factors >= 1", {worker: factor})
        for shard, seconds in self.slow_shards.items():
            is_wrong = shard < 0 or not 0 <= seconds < float("inf")
            check(not is_wrong, "scenario.slow_shards must map shards >= 0 to seconds >= 0", {shard: seconds})

    @property
    def loses_workers(self) -> bool:
        return self.up is not None or bool(self.absences)


def _absences(given: Any) -> dict[int, list[float]]:
    rule = "scenario.absences must map workers >= 0 to pairs of ascending seconds > 0: lost, there again"
    check(isinstance(given, Mapping), rule, given)
    found = {}
    for worker, times in given.items():
        try:
            found[int(worker)] = seconds = [float(each) for each in times]
        except (TypeError, ValueError):
            seconds = []
        ascend = all(low < high < float("inf") for low, high in pairwise([0.0, *seconds]))
        check(bool(seconds) and len(seconds) % 2 == 0 and ascend and int(worker) >= 0, rule, {worker: times})
    return found


def _delay(where: str, options: Mapping[str, Any]) -> Distribution:
    options = dict(options)
    probability = options.pop("probability", 1.0)
    check(isinstance(probability, int | float), f"{where}.probability must be a number", repr(probability))
    source = distribution(where, options)
    forgets = probability == 1 or not isinstance(source, Remembering) or source.renewal == 1
    check(forgets, f"{where}.probability must be 1 for {source.name}, which has a memory", probability)
    try:
        return source if probability == 1 else Occasional(probability, source)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def mean_gradient_s(cluster: ClusterConfig, scenario: ScenarioConfig, worker: int) -> float:
    """Mean seconds of a worker's gradient, with its injected delay."""
    jitter, delay = cluster.jitter, scenario.compute_delay
    seconds = cluster.gradient_s[worker % len(cluster.gradient_s)] * scenario.slow.get(worker, 1.0)
    if jitter is not None:
        seconds *= jitter.expectation()
    if delay is not None and worker in (scenario.delayed_workers or [worker]):
        seconds += delay.expectation()
    return seconds


class Cluster:
    """The durations of one run, from streams keyed by (seed, worker), the same for every strategy."""

    def __init__(self, config: ClusterConfig, scenario: ScenarioConfig, seed: int) -> None:
        self.num_workers = config.workers
        self.num_shards = config.shards
        self.update_s = config.update_s
        self.network = Network(config.network, config.workers, config.shards)
        means = [
            config.gradient_s[worker % len(config.gradient_s)] * scenario.slow.get(worker, 1.0)
            for worker in range(config.workers)
        ]
        ones = [1.0] * config.workers
        gradient = Draws(seed, "compute", config.jitter or Constant(1.0), means)
        self._compute_draws = [gradient]
        self.compute_s = gradient.next
        """(worker) -> seconds of its next gradient, including the injected delay."""
        if scenario.compute_delay is not None:
            delayed = scenario.delayed_workers or range(config.workers)
            factors = [float(worker in delayed) for worker in range(config.workers)]
            delay = Draws(seed, "compute delay", scenario.compute_delay, factors)
            self._compute_draws.append(delay)
            self.compute_s = lambda worker: gradient.next(worker) + delay.next(worker)
        shards = range(config.shards)

        def one_a_shard(purpose: str, source: Distribution | None) -> list[Draws]:
            """Empty without a distribution."""
            return [] if source is None else [Draws(seed, f"{purpose} {shard}", source, ones) for shard in shards]

        # Of pushes, and of pull responses; by whether it is a push.
        delays = {True: ("push", scenario.push_delay), False: ("pull", scenario.pull_delay)}
        self._delays = {way: one_a_shard(f"{name} delay", delay) for way, (name, delay) in delays.items()}
        self._jitters = {way: one_a_shard(f"{name} jitter", config.network.jitter) for way, (name, _) in delays.items()}
        self._shard_delays_s = [scenario.slow_shards.get(shard, 0.0) for shard in shards]
        self.loses_workers, self._absences = scenario.loses_workers, scenario.absences
        lasting = (("up", scenario.up), ("down", scenario.down))
        self._lasting = [Draws(seed, name, source, ones) for name, source in lasting if source is not None]

    def next_absence(self, worker: int, after: float) -> tuple[float, float] | None:
        """When the worker, there at `after`, is lost next, and when it is there again; None: never."""
        if self._lasting:
            up, down = self._lasting
            lost = after + up.next(worker)
            return lost, lost + down.next(worker)
        times = self._absences.get(worker, [])
        pairs = zip(times[::2], times[1::2], strict=True)
        return next((pair for pair in pairs if pair[0] > after), None)

    def draw_compute(self, worker: int) -> tuple[float, float]:
        """Seconds of the worker's next gradient, and of its injected delay."""
        gradient, *delays = self._compute_draws
        return gradient.next(worker), sum(delay.next(worker) for delay in delays)

    def draw_computes(self, begin: int, num: int) -> tuple[Array, Array]:
        """Seconds of gradients number begin, begin + 1, ... of every worker, and of their delays: twice [workers, num].

        `draw_compute` is not affected.
        """
        gradient, *delays = self._compute_draws
        seconds = gradient.made(begin, num)
        return seconds, sum((delay.made(begin, num) for delay in delays), np.zeros_like(seconds))

    def draw_message_delay(self, is_push: bool, worker: int, shard: int) -> float:
        """Injected seconds of the next push, or of the next pull response."""
        delays = self._delays[is_push]
        drawn_s = delays[shard].next(worker) if delays else 0.0
        return drawn_s if is_push else drawn_s + self._shard_delays_s[shard]

    def busy_s(self, worker: int) -> float:
        """Seconds of all gradients that the worker has started."""
        return sum(draws.drawn(worker) for draws in self._compute_draws)

    @property
    def _draws(self) -> list[Draws]:
        return [*self._compute_draws, *chain(*self._delays.values(), *self._jitters.values()), *self._lasting]

    def state_dict(self) -> dict[str, Any]:
        """Positions of the streams, and when the NICs are free; plain types."""
        return {"draws": [draws.state_dict() for draws in self._draws], "network": self.network.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`; the same durations follow, in every bit."""
        for draws, theirs in zip(self._draws, state["draws"], strict=True):
            draws.load_state_dict(theirs)
        self.network.load_state_dict(state["network"])

    @property
    def sends_instantly(self) -> bool:
        """Whether messages take no time, and shards neither."""
        drawn = chain(*self._delays.values(), *self._jitters.values())
        return self.network.is_instant and not (self.update_s or any(drawn) or any(self._shard_delays_s))

    def send(self, now: float, is_push: bool, worker: int, shard: int, size_bytes: int) -> tuple[float, float]:
        """When a block that is sent now is through the network, and when it arrives.

        Jitter and injected delays lie between the two.

        Args:
            is_push: of a gradient, from the worker to the shard; else of the weights, from the shard to the worker.
        """
        through_at = self.network.send(now, is_push, worker, shard, size_bytes)
        return through_at, self.late(through_at, is_push, worker, shard)

    def late(self, at: float, is_push: bool, worker: int, shard: int) -> float:
        """Arrival time of the next message with jitter and injected delays; `at` without them."""
        if self._jitters[is_push]:
            at += self._jitters[is_push][shard].next(worker)
        return at + self.draw_message_delay(is_push, worker, shard)


class DelayInjector:
    """Injects delays into one worker on a real machine, from the same streams as `Cluster`.

    Args:
        absolute: a gradient takes the seconds of the cluster, if the machine is fast enough; else the worker is
            slowed down by the ratio of its seconds to those of the cluster's fastest worker.
        iteration: number of the first push; the draws of earlier ones are skipped.
        rounds: the mini-batches of each push.
    """

    def __init__(
        self,
        config: ClusterConfig,
        scenario: ScenarioConfig,
        seed: int,
        worker: int,
        absolute: bool,
        iteration: int,
        rounds: Rounds = SINGLE,
    ) -> None:
        self._cluster = Cluster(config, scenario, seed)
        self._config, self._worker = config, worker
        self._absolute = absolute
        self._fastest_s = min(config.gradient_s[: config.workers])  # there may be more entries than workers
        for _ in range(rounds.batches(iteration).start):
            self.compute(0.0)
        for _ in range(iteration):
            for shard in range(config.shards):
                self.push(shard)
                self.pull(shard)

    def draw(self) -> tuple[float, float]:
        """Seconds of the next gradient on the cluster, and of its delay."""
        return self._cluster.draw_compute(self._worker)

    def wanted_s(self, drawn_s: float, spent_s: float, share: float = 1.0) -> float:
        """Seconds after which this share of a gradient's elements, from the end, is to be ready.

        Args:
            drawn_s: that the gradient takes on the cluster.
            spent_s: after which the share was ready on this machine.
        """
        on_cluster_s = drawn_s * self._config.ready_after(share)
        return max(spent_s, on_cluster_s if self._absolute else spent_s * drawn_s / self._fastest_s)

    def compute(self, spent_s: float) -> tuple[float, float]:
        """(slow-down, delay): seconds to wait after a gradient that took `spent_s` on this machine."""
        drawn_s, delay_s = self.draw()
        return self.wanted_s(drawn_s, spent_s) - spent_s, delay_s

    def push(self, shard: int) -> float:
        """Seconds by which to delay the next push to the shard."""
        return self._cluster.draw_message_delay(True, self._worker, shard)

    def pull(self, shard: int) -> float:
        """Seconds by which to delay the next block of the shard."""
        return self._cluster.draw_message_delay(False, self._worker, shard)
