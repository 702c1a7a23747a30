"""The contract suite of strategies: every interleaving of small cases, and long random ones.

The harness checks the contract after every event. A collective, which has no state machine, is held to its groups,
asynchronous peers to their graph.
"""

import math
import random
from dataclasses import dataclass

from syncline.checking.harness import ContractBroken, Harness
from syncline.strategies.collective import Averaging, Collective, steps_to_spread
from syncline.strategies.neighbours import Neighbours
from syncline.strategies.protocol import StrategyOptions

PUSHES = ((1, 6), (2, 7), (3, 5))  # workers, and events of which every order is tried
LEAVES = ((2, 5), (3, 5))  # the same, with one worker that leaves and returns
LARGEST = 6  # workers of random cases
NUM_RANDOM = 100  # random cases of each kind
LENGTH = 40  # events of a random case
ROUNDS = 3000  # events within which every worker must start again
MANY = 40  # workers of a collective, or peers


@dataclass(frozen=True, slots=True)
class Checked:
    """What a strategy was held to."""

    num_events: int
    sizes: tuple[int, ...]  # numbers of workers that it accepts, of those that were tried


def check_strategy(options: StrategyOptions) -> Checked:
    """Hold a strategy to the contract.

    Raises:
        ContractBroken: it breaks it.
        ValueError: it accepts no number of workers up to LARGEST, or MANY without a server.
    """
    most = LARGEST if options.has_server else MANY
    sizes = tuple(number for number in range(1, most + 1) if accepts(options, number))
    if not sizes:
        raise ValueError(f"strategy={options.name} must accept some number of workers in 1 .. {most}, got none")
    if options.neighbours is not None:
        return Checked(sum(check_neighbours(options.neighbours, number) for number in sizes), sizes)
    if not options.has_server:
        return Checked(sum(check_collective(options, number) for number in sizes), sizes)
    before, num = random.getstate(), 0
    for number, depth in PUSHES:
        num += explore(Harness(options, number), depth) if number in sizes else 0
    for number, depth in LEAVES:
        num += explore_leaves(Harness(options, number), depth) if number in sizes else 0
    chance = random.Random(0)
    for _ in range(NUM_RANDOM):
        num += wander(Harness(options, chance.choice(sizes)), chance)
        num += starve(Harness(options, chance.choice(sizes)), chance)
    if random.getstate() != before:
        rule = "draws from Python's global generator: a strategy must answer the same events with the same commands"
        raise ContractBroken(rule, [], "-")
    return Checked(num, sizes)


def accepts(options: StrategyOptions, num_workers: int) -> bool:
    try:
        options.check_cluster(num_workers, 1)
    except ValueError:
        return False
    return True


def explore(harness: Harness, left: int) -> int:
    """Every order of `left` pushes and timers. Returns the number of events."""
    if left == 0:
        return 0
    num = 0
    if harness.due < math.inf:
        after = harness.fork()
        after.wait()
        num += 1 + explore(after, left - 1)
    for worker in harness.running:
        after = harness.fork()
        after.push(worker, min(1.0, after.due - after.now), loss=0.5**left)
        num += 1 + explore(after, left - 1)
    return num


def explore_leaves(harness: Harness, left: int, absent: int | None = None, may_leave: bool = True) -> int:
    """Every order of pushes, one worker's leaving and, right after a push at the latest, its return."""
    if left == 0:
        return 0
    moves = [("push", worker) for worker in harness.running]
    moves += [("leave", worker) for worker in harness.counts] if may_leave else []
    moves += [("join", absent)] if absent is not None else []
    num = 0
    for kind, worker in moves:
        after = harness.fork()
        if kind == "push":
            after.push(worker, min(1.0, after.due - after.now))
        else:
            getattr(after, kind)(worker)
        still_absent = worker if kind == "leave" else absent if kind == "push" else None
        num += 1 + explore_leaves(after, left - 1, still_absent, may_leave and kind != "leave")
    return num


def wander(harness: Harness, chance: random.Random) -> int:
    """Random pushes, timers, leaves, joins and resumptions; impossible events before each. Returns their number."""
    for _ in range(LENGTH):
        harness.check_illegal_events_change_nothing()
        kind = chance.choices(("push", "leave", "join", "timer", "resume"), (12, 1, 1, 1, 1))[0]
        absent = [worker for worker in range(harness.num_workers) if worker not in harness.counts]
        if kind == "push" and harness.running:
            after = min(chance.randrange(10) / 1000, harness.due - harness.now)
            harness.push(chance.choice(harness.running), after, loss=chance.random())
        elif kind == "timer" and harness.due < math.inf:
            harness.wait()
        elif kind == "resume":
            harness.resume()
        elif kind == "leave" and harness.counts:
            harness.leave(chance.choice(sorted(harness.counts)))
        elif kind == "join" and absent:
            harness.join(chance.choice(absent))
    return len(harness.history)


def starve(harness: Harness, chance: random.Random) -> int:
    """After random pushes every computing worker finishes in its own time: each must start again and again."""
    seconds = [chance.uniform(0.01, 3.0) for _ in range(harness.num_workers)]
    for number in range(chance.randrange(LENGTH)):
        if harness.running:
            worker = chance.choice(harness.running)
            harness.push(worker, min(seconds[worker], harness.due - harness.now), loss=1 / (number + 1))
        else:
            harness.wait()
    check_that_nobody_starves(harness, seconds)
    return len(harness.history)


def check_that_nobody_starves(harness: Harness, seconds: list[float]) -> None:
    """From here, if worker w takes seconds[w] for a gradient, every worker starts three more, in ROUNDS events.

    Raises:
        ContractBroken: one does not, or an old gradient is neither applied nor discarded by then.
    """
    before, version, push = dict(harness.batches), harness.version, harness.next_push
    for _ in range(ROUNDS):
        harness.step(lambda worker, _: seconds[worker])
        if harness.version >= version + 3 and all(harness.batches[worker] >= before[worker] + 3 for worker in before):
            harness.demand(min(harness.pending, default=push) >= push, "an old gradient is still pending")
            return
    started = {worker: harness.batches[worker] - before[worker] for worker in before}
    rule = f"in {ROUNDS} events every worker must start 3 gradients or more, and 3 updates be made: workers started "
    harness.demand(False, f"{rule}{started}, {harness.version - version} updates")


def check_collective(options: StrategyOptions, num_workers: int) -> int:
    """Each worker gets a mean, and all workers' parameters spread. Returns the turns."""
    assert options.collective is not None
    turns, within = options.collective.all_turns(num_workers), options.collective.spread(num_workers)
    for turn, averaged in enumerate(turns):
        rule = _fault(options.collective, turn, averaged, num_workers)
        if not rule and steps_to_spread(turns, turn, within) is None:
            rule = f"{within} consecutive steps must spread every worker's parameters to all"
        if rule:
            raise ContractBroken(f"turn {turn} of {num_workers} workers: {rule}", [], str(options))
    return len(turns)


def _fault(collective: Collective, turn: int, averaged: list[Averaging], num_workers: int) -> str:
    """What is wrong with this turn; empty: nothing."""
    groups = [each.members for each in averaged]
    if sorted(worker for each in averaged for worker in each.receivers) != list(range(num_workers)):
        return f"each worker must be in exactly one group, got {groups}"
    if any(list(each.members) != sorted(set(each.members)) for each in averaged):
        return f"groups must be sorted, as every rank computes the same list, got {groups}"
    if averaged != list(collective.of_turn(turn, num_workers)):
        return "it must be alike whenever it is asked for"
    return ""


def check_neighbours(neighbours: Neighbours, num_workers: int) -> int:
    """Each worker has as many neighbours, which have it, too, and all workers are joined. Returns the neighbours."""
    workers, degree = range(num_workers), neighbours.degree(num_workers)
    graph = [[neighbours.neighbour(worker, number, num_workers) for number in range(degree)] for worker in workers]
    rule = ""
    if any(set(found) - (set(workers) - {worker}) or len(set(found)) < degree for worker, found in enumerate(graph)):
        rule = f"each must have {degree} different neighbours among the others"
    elif any(worker not in graph[other] for worker in workers for other in graph[worker]):
        rule = "a neighbour must have it as a neighbour, too"
    reached = [0]
    for worker in reached:
        reached += [] if rule else [other for other in graph[worker] if other not in reached]
    if rule or len(reached) < num_workers:
        raise ContractBroken(
            f"{num_workers} workers: {rule or 'the graph must join all'}, got {graph}", [], str(neighbours)
        )
    return degree * num_workers
