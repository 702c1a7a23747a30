"""Assigns shards and workers to hosts."""

from dataclasses import dataclass

from syncline.config.checks import ConfigError, check
from syncline.config.runners import MultinodeConfig


@dataclass(frozen=True, slots=True)
class Place:
    """The processes of one host, by index."""

    shards: tuple[int, ...]
    workers: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.shards or self.workers)


def places(runner: MultinodeConfig, workers: int, shards: int) -> list[Place]:
    """One place for each host, in order; empty if the number of hosts is not known yet.

    Workers are numbered host by host. By default they are spread evenly over all hosts, or over those without shards of
    their own; shards likewise over the hosts with workers, or over their own hosts.

    Args:
        shards: 0 without a parameter server.

    Raises:
        ConfigError: the numbers do not match.
    """
    check(bool(shards) or runner.shards_on == "workers", "runner.shards_on=own needs a parameter server", "none")
    if runner.nodes is None:
        return []
    hosts = list(range(runner.nodes))
    own = runner.shard_hosts or hosts[: min(shards, runner.nodes - 1)]
    others = hosts if runner.shards_on == "workers" else [host for host in hosts if host not in own]
    if runner.shards_on == "own":
        check(bool(own), "runner.shards_on=own needs a second host", hosts)
    counts = runner.workers_per_host
    if len(counts) == runner.nodes:
        on_host = list(counts)
    elif counts:
        on_host = [counts[0] if host in others else 0 for host in hosts]
    elif others:
        on_host = _spread(workers, others, runner.nodes)
    else:
        raise ConfigError(f"runner.shards_on=own leaves none of {runner.nodes} hosts to the workers")
    check(sum(on_host) == workers, f"runner.workers_per_host must come to cluster.workers = {workers}", on_host)
    shards_on_host = _spread(shards, own if runner.shards_on == "own" else others, runner.nodes)
    made = [
        Place(
            tuple(range(sum(shards_on_host[:host]), sum(shards_on_host[: host + 1]))),
            tuple(range(sum(on_host[:host]), sum(on_host[: host + 1]))),
        )
        for host in hosts
    ]
    idle = [host for host in hosts if made[host].is_empty]
    check(not idle, "every host must have a worker or a shard; without: runner.hosts number", idle)
    return made


def _spread(count: int, hosts: list[int], num_hosts: int) -> list[int]:
    """Spread `count` as evenly as possible over `hosts`, the first ones having one more; returns each host's number."""
    on_host = [0] * num_hosts
    for place, host in enumerate(hosts):
        on_host[host] = count // len(hosts) + (place < count % len(hosts))
    return on_host
