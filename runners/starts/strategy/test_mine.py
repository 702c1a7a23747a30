"""pytest test_mine.py"""

import json
import random

import pytest
from mine import MineOptions

from syncline.strategies.protocol import Apply, Discard, Grant, PushArrived, Repeat, WorkerJoined, WorkerLeft

WORKERS = 4


@pytest.mark.parametrize("seed", range(20))
def test_no_push_is_lost_or_used_twice_and_a_saved_state_answers_as_the_original(seed: int) -> None:
    rng, options = random.Random(seed), MineOptions()
    strategy, computing, pending, version = options.start(WORKERS), set(range(WORKERS)), set[int](), 0
    starts = dict.fromkeys(range(WORKERS), 1)
    for push in range(400):
        assert computing, "nobody computes, and nothing more can happen"
        worker = rng.choice(sorted(computing))
        event = PushArrived(at=float(push), push=push, worker=worker, version=version, loss=1.0)
        restored = options.start(WORKERS)
        restored.load_state_dict(json.loads(json.dumps(strategy.state_dict())))
        commands = strategy.handle(event)
        assert restored.handle(event) == commands
        computing.remove(worker)
        pending.add(push)
        for command in commands:
            if isinstance(command, Apply):
                assert pending.issuperset(command.pushes), "these are not pending"
                pending.difference_update(command.pushes)
                version += 1
            elif isinstance(command, Discard):
                pending.remove(command.push)
            elif isinstance(command, Grant | Repeat):
                assert command.worker not in computing, "it computes already"
                computing.add(command.worker)
                starts[command.worker] += 1
    assert version > 0
    assert min(starts.values()) > 1, "a worker starves"
    assert len(pending) < 20, "pushes are neither used nor discarded"


def test_a_worker_that_joins_is_granted_at_once() -> None:
    strategy = MineOptions().start(WORKERS)
    strategy.handle(WorkerLeft(at=1.0, worker=0))
    assert [type(command) for command in strategy.handle(WorkerJoined(at=2.0, worker=0))] == [Grant]


def test_an_option_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.size must be >= 1, got 0"):
        MineOptions(size=0)
