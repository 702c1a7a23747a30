"""What a member of a collective writes when a run is stopped."""

from types import SimpleNamespace

from syncline.live.collective import member
from syncline.live.collective.member import Member


def test_a_member_writes_the_checkpoint_of_a_stop_when_the_logs_of_all_are_on_disk(monkeypatch):
    """The coordinator ends all processes once it is written."""
    done = []
    monkeypatch.setattr(member, "all_reduce", lambda tensor: done.append("all are there"))
    writer = SimpleNamespace(
        write_checkpoint=lambda state, number: done.append("checkpoint"), finish=lambda: done.append("on disk")
    )
    one = Member.__new__(Member)
    vars(one).update(_device="cpu", _writes_checkpoints=True, _stop_checkpoint=1.0, _writer=writer)
    vars(one).update(_tally=SimpleNamespace(totals=SimpleNamespace()), _clock=SimpleNamespace(now=lambda: 1.0))
    monkeypatch.setattr(Member, "_checkpoint", lambda self: None)
    one.save_end("stop")
    assert done == ["all are there", "checkpoint", "on disk"]
