"""The event log of a member of a collective, where a run resumes."""

from types import SimpleNamespace

import pytest

from syncline.config import compose
from syncline.live.collective import member
from syncline.live.collective.member import Member
from syncline.live.collective.steps import StepLog, StepResult
from syncline.records.events import read_events
from syncline.records.store import RecordError
from syncline.rounds import SINGLE
from syncline.server.report import PushReport


def rows(folder, average, updates, resume=1.0, steps=range(0)):
    """Kinds and versions in the log of a run that continues after so many updates, and makes these steps."""
    config = compose(["strategy=ds_sync", f"strategy.average={average}", "cluster.workers=4", "runner=local"])[0]
    log = StepLog(SimpleNamespace(folder=folder, config=config, resume=resume), 0, updates, SINGLE)
    for step in steps:
        gradient = PushReport(0, iteration=step, version=step, started_at=step, computed_at=step + 0.5)
        log.append(StepResult(gradient, step + 0.6, step + 0.7, 1.0, is_last=False, is_applied=True))
    log.close()
    found = read_events(folder / "events-0.arrow")
    return list(zip(found["kind"].to_pylist(), found["version"].to_pylist(), strict=True))


@pytest.mark.parametrize("average", ["after_step", "before_forward"])
def test_a_member_that_resumes_keeps_the_rows_of_the_steps_before(average, tmp_path):
    whole = rows(tmp_path, average, 0, resume=None, steps=range(4))
    for updates in (4, 3, 1, 0):
        kept = rows(tmp_path, average, updates)
        assert kept == whole[: len(kept)]
        assert [row for row in kept if row[0] == "applied"] == [("applied", step + 1) for step in range(updates)]
        assert rows(tmp_path, average, updates, steps=range(updates, 4)) == whole


@pytest.mark.parametrize("average", ["after_step", "before_forward"])
def test_a_log_without_the_step_before_is_refused(average, tmp_path):
    """Its member was killed before it had written it."""
    rows(tmp_path, average, 0, resume=None, steps=range(2))
    with pytest.raises(RecordError, match=r"events-0\.arrow: ends before update 3, .*; use rerun=true"):
        rows(tmp_path, average, 3)


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
