"""The loop of a shard's process, without a strategy and without connections."""

import queue
import time
from types import SimpleNamespace

from syncline.config import compose
from syncline.live.shard.connections import Call, Disconnected
from syncline.live.shard.server import ShardServer
from syncline.live.wire.clock import RunClock
from syncline.live.wire.control_messages import Stop


def shard(**attributes):
    made = ShardServer.__new__(ShardServer)
    vars(made).update(_inbox=queue.SimpleQueue(), _stop_checkpoint=None, **attributes)
    return made


def test_what_is_due_is_saved_after_an_update_without_a_push():
    """A worker that leaves or joins may cause one; the next event may cause another."""
    totals, saved = SimpleNamespace(updates=0), []
    elastic = SimpleNamespace(ended_by=None, wakes_at=float("inf"), owes=None)
    clock, watchdog = RunClock(), SimpleNamespace(check=lambda *_: None)
    clock.zero_s = time.monotonic()
    config = compose(["strategy=asp", "runner=local"])[0]
    made = shard(_shard=elastic, _clock=clock, _watchdog=watchdog, _config=config)
    made._report, made._save_if_due = lambda: None, lambda: saved.append(totals.updates)

    def update():
        totals.updates += 1

    for message in (Call(update), Call(update), Stop(1.0)):
        made._inbox.put(message)
    made._serve()
    assert saved == [0, 1, 2]


def test_a_connection_that_another_one_has_replaced_does_not_end_it():
    """At the end the shard waits until the workers have closed theirs."""
    old, new = (SimpleNamespace(worker=0, post=lambda header, version, is_busy: None) for _ in range(2))
    made = shard(_connections={0: new})
    for connection in (old, new):
        made._inbox.put(Disconnected(connection, "closed"))
    made._close_connections()
    assert made._connections == {}
    assert made._inbox.empty()
