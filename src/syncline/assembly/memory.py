"""The memory that a run needs at least, and has."""

import math
import os

from syncline.assembly.network import count_parameters
from syncline.config import ConfigError, RunConfig
from syncline.config.compression import FeedbackConfig
from syncline.shapes import num_values
from syncline.timing.draws import BLOCK


def check_memory(config: RunConfig) -> None:
    """Refuse a run that cannot fit into the memory of this machine, before anything is built or loaded.

    Raises:
        ConfigError: it does not fit, or as `least_bytes`.
    """
    parts, available = least_bytes(config), _memory_bytes()
    needs, most = sum(parts.values()), max(parts, key=lambda key: parts[key])
    if needs > available:
        rule = f"the run must fit into {available / 1e9:,.1f} GB of memory"
        raise ConfigError(f"{rule}, got one that needs at least {needs / 1e9:,.1f} GB, most of it for {most}")


def _memory_bytes() -> float:
    """Memory of this machine, or the limit of this process; infinite where neither is known."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return installed if limit == resource.RLIM_INFINITY else min(installed, limit)


def least_bytes(config: RunConfig) -> dict[str, int]:
    """A lower bound of the memory of a run in virtual time, by the key that determines it; without activations.

    Raises:
        ConfigError: the model does not fit the data.
    """
    cluster, scenario, strategy = config.cluster, config.scenario, config.strategy
    of_shards = (scenario.push_delay, scenario.pull_delay, cluster.network.jitter, cluster.network.jitter)
    streams = 1 + cluster.shards * sum(source is not None for source in of_shards)
    tables = 64 * cluster.shards  # each shard knows every worker
    parts = {"cluster.workers": cluster.workers * (8 * BLOCK * streams + tables)}
    shape = config.dataset.shape
    if config.gradients and shape is not None:
        is_joined = strategy.neighbours is None and (strategy.collective is None or strategy.collective.peers is None)
        vectors = (3 - is_joined) * cluster.workers if strategy.has_replicas else 2 + getattr(strategy, "k", 1)
        size = 4 * count_parameters(config)[0]
        parts["model"] = size * vectors
        parts["compress"] = size * cluster.workers * _num_kept(config)
        parts["batch_size"] = 4 * num_values(shape) * config.batch_size
        parts["dataset"] = num_values(shape) * (config.dataset.known_num_train or 0)
    return parts


def _num_kept(config: RunConfig) -> int:
    """Vectors that compression keeps of each worker."""
    compress = config.compress
    if config.local.fragments > 1:
        return 3  # the replica, too
    if not isinstance(compress, FeedbackConfig):
        return 0
    # A pull is a version of its own.
    return 4 if config.strategy.has_replicas else compress.feedback + 2 * compress.pulls
