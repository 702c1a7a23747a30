"""The shared clocks against a plain table of counts."""

from hypothesis import given
from hypothesis import strategies as st

from syncline.strategies.clocks import Clocks
from syncline.strategies.protocol import WorkerJoined, WorkerLeft


@given(st.integers(1, 6), st.lists(st.tuples(st.sampled_from(["tick"] * 8 + ["leave", "join"]), st.integers(0, 5))))
def test_the_clocks_agree_with_a_plain_table(num_workers, history):
    clocks = Clocks(range(num_workers))
    counts = dict.fromkeys(range(num_workers), 0)
    last = {worker: (0, worker) for worker in counts}  # (time of the last push or entry, order)
    floor = 0
    for now, (kind, worker) in enumerate(history, start=1):
        if kind == "tick" and worker in counts:
            counts[worker] += 1
            last[worker] = (now, 0)
            assert clocks.tick(worker) == counts[worker] - min(counts.values())
        elif kind == "leave" and worker in counts:
            floor = max(counts.values())
            del counts[worker]
            clocks.leave(WorkerLeft(now, worker))
        elif kind == "join" and worker not in counts:
            counts[worker] = min(counts.values(), default=floor)
            last[worker] = (now, 0)
            clocks.join(WorkerJoined(now, worker))
        assert clocks.counts == counts
        if counts:
            assert clocks.minimum == min(counts.values())
            assert clocks.maximum == max(counts.values())
            slowest = min(counts, key=lambda w: (counts[w], last[w]))
            assert clocks.slowest == slowest
            assert {w for w in counts if clocks.is_fastest(w)} == {w for w in counts if counts[w] == clocks.maximum}
        restored = Clocks(())
        restored.load_state_dict(clocks.state_dict())
        assert restored.state_dict() == clocks.state_dict()
