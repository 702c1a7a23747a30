"""The coordinator's part of a run of real processes; the processes are played by the test over real connections."""

import select
import signal
import socket
import threading
import time
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace

import pytest
from leaks import nothing_left

from runners import attempt, live
from runners.attempt import Attempt
from runners.failures import Restart, RunFailed
from runners.observer import LiveObserver
from runners.stop import StopRequested
from syncline.config import compose
from syncline.live.node.control import versions
from syncline.live.node.process import Job
from syncline.live.node.ranks import Ranks
from syncline.live.wire.control_messages import Begin, Done, Hello, ProgressReport, Ready, Stop, Stopped, decode, encode
from syncline.live.wire.frames import receive_json, send_json
from syncline.live.wire.handshake import connect
from syncline.monitor import RunMonitor
from syncline.progress import Totals
from syncline.records.snapshots import state_path, write_state
from syncline.records.writer import RecordWriter

LONG_S = 3.0
WORDS = ["runner=local", "runner.evaluate=during", "strategy=asp", "model=softmax_regression", "cluster.workers=1"]
RANKS = Ranks(0, 1, 1, 1, "127.0.0.1", 1, 0)


class Shard:
    """The one shard, which reports all the time until it is told to end, and at most for so long."""

    def __init__(self, folder):
        self._folder, self._sock, self._thread = folder, None, threading.Thread(target=self._report)

    def set(self, folder, name):
        """The attempt is announced."""
        job = Job.read(self._folder, name)
        assert (job.words, job.num_present, folder) == (WORDS, 1, self._folder.name)
        self._sock = connect(job.control_address, job.secret.encode())
        self._thread.start()

    def _report(self):
        ends, message = time.monotonic() + LONG_S, Hello("shard", 0, "unix:there", pid=1)
        while time.monotonic() < ends and not select.select([self._sock], [], [], 0.01)[0]:
            send_json(self._sock, encode(message))
            message = ProgressReport(1, 32, 0.1, None, 1437)
        with suppress(OSError):  # the coordinator has ended the attempt
            send_json(self._sock, encode(Done("target", Totals(1).state_dict())))
            self._sock.shutdown(socket.SHUT_WR)

    def check(self):
        """What happens when the coordinator looks around."""

    def end(self):
        if self._sock is not None:
            self._thread.join()
            self._sock.close()


@contextmanager
def attempted(folder, played, *more, number=0, checkpoint=None):
    """An attempt whose processes are played by this class; a checkpoint of this number may have been there before."""
    config, _ = compose([*WORDS, *more])
    monitor = RunMonitor(config, lambda row: None, lambda progress: None)
    evaluator = SimpleNamespace(close=lambda: None)
    with (
        nothing_left(),
        pytest.MonkeyPatch.context() as patch,
        RecordWriter(folder / "record", config.as_dict(), with_events=False) as record,
        closing(LiveObserver(config, record, monitor, evaluator)) as observer,
    ):
        (record.folder / "log").mkdir()
        if checkpoint is not None:
            state = {"totals": {"updates": 1234}}
            write_state(state_path(record.folder / "checkpoint", checkpoint, 0), {}, state)
        process = played(record.folder)
        patch.setattr(attempt, "Announcement", lambda ranks: process)
        patch.setattr(observer, "tick", process.check)
        made = Attempt(config, record.folder, WORDS, observer, RANKS, number)
        yield made
        made.end()
        process.end()
        assert not list(record.folder.glob("attempt-*"))


def test_a_target_ends_a_run_whose_shard_reports_all_the_time(tmp_path, monkeypatch):
    with attempted(tmp_path, Shard, "target.value=0.5") as made:
        monkeypatch.setattr(RunMonitor, "has_reached_target", True)
        begun = time.monotonic()
        assert made.run().ended_by == "target"
        assert time.monotonic() - begun < LONG_S / 2


class Killed(Shard):
    """Its shard is killed before it is ready."""

    def _report(self):
        send_json(self._sock, encode(Hello("shard", 0, "unix:there", pid=1)))
        self._sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("number", "error"), [(0, RunFailed), (1, Restart)], ids=["the first start", "a restart"])
def test_a_loss_before_the_beginning_restarts_the_run_again_if_it_is_restarting(number, error, tmp_path):
    with attempted(tmp_path, Killed, number=number) as made, pytest.raises(error, match=r"shard 0 .* was lost"):
        made.run()


class Unannounced(Shard):
    """torchrun's store is lost."""

    def set(self, folder, name):
        raise RuntimeError("no store")


def test_an_attempt_that_cannot_be_announced_leaves_nothing(tmp_path):
    with attempted(tmp_path, Unannounced) as made, pytest.raises(RuntimeError, match="no store"):
        made.run()


class Other(Shard):
    """A shard of another host, which has other code."""

    def _report(self):
        send_json(self._sock, encode(Hello("shard", 0, pid=1, host="b", versions=versions() | {"syncline": "other"})))


def test_a_process_of_another_version_ends_the_run(tmp_path):
    own = versions()["syncline"]
    line = f"shard 0 on host b has syncline other, the coordinator {own}; they must be the same"
    with attempted(tmp_path, Other) as made, pytest.raises(RunFailed, match=line):
        made.run()


def test_a_worker_that_does_not_come_is_named(tmp_path):
    line = r"^(shard 0, )?worker 0 did not come within 0\.2 s$"
    with attempted(tmp_path, Shard, "runner.start_timeout_s=0.2") as made, pytest.raises(RunFailed, match=line):
        made.run()


class Stopping(Shard):
    """The first member of a collective; the coordinator is asked to stop, and it writes a checkpoint later."""

    asked, writes, has_begun = signal.SIGUSR1, True, False

    def _report(self):
        for message in (Hello("worker", 0, "tcp:there", pid=1), ProgressReport(1, 32, 60.0, None, 1437), Ready()):
            send_json(self._sock, encode(message))
        while not isinstance(message := decode(receive_json(self._sock)), Stop):
            self.has_begun = isinstance(message, Begin)
        self._answer(message.checkpoint)

    def _answer(self, checkpoint):
        time.sleep(0.5)
        if self.writes:
            path = state_path(self._folder / "checkpoint", checkpoint, 0)
            write_state(path, {}, {"totals": {"updates": 8}})
        send_json(self._sock, encode(Stopped()))

    def check(self):
        if self.has_begun:
            raise StopRequested(self.asked)


BSP = ["strategy=bsp", "strategy.topology=allreduce", "optimizer.momentum=0"]


def kept(folder, played, checkpoint=None):
    """What can be resumed after a stop; another checkpoint may have been there before."""
    with attempted(folder, played, *BSP, checkpoint=checkpoint) as made, pytest.raises(StopRequested) as stop:
        made.run()
    return stop.value.kept


@pytest.mark.parametrize("asked", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_stop_waits_for_the_steps_of_a_collective(asked, tmp_path, monkeypatch):
    """A step takes a minute, of which a part is waited for; after a notice of a time limit there is more time."""
    monkeypatch.setattr("runners.attempt.STOP_S", 0.0)
    monkeypatch.setattr(Stopping, "asked", asked)
    assert kept(tmp_path, Stopping) == "record checkpointed"


class Hanging(Stopping):
    """It never answers."""

    asked = signal.SIGTERM

    def _answer(self, checkpoint):
        with suppress(OSError):
            receive_json(self._sock)


def test_a_stop_waits_no_longer_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("runners.attempt.STOP_MOST_S", 0.1)
    assert kept(tmp_path, Hanging) == ""


def test_a_stop_without_its_checkpoint_names_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(Stopping, "writes", False)
    assert kept(tmp_path, Stopping, checkpoint=1.0) == "record stopped; its last checkpoint is of update 1,234"


@pytest.mark.parametrize(("number", "where"), [(None, "the beginning"), (1.0, "its last checkpoint")], ids=str)
def test_a_restart_says_from_where(number, where, tmp_path, monkeypatch, capsys):
    class Once:
        """The first attempt loses a shard."""

        def __init__(self, config, folder, words, observer, ranks, number):
            self._number = number

        def run(self):
            if not self._number:
                raise Restart("shard 0 was lost")

        def end(self):
            pass

    monkeypatch.setattr(live, "Attempt", Once)
    if number is not None:
        write_state(state_path(tmp_path / "checkpoint", number, 0), {}, {})
    other = SimpleNamespace(lost=str, restarted=str, folder=tmp_path)  # observer and record
    live._attempts(compose(["runner=local", "strategy=asp"])[0], other, other, SimpleNamespace(words=[], ranks=RANKS))
    assert f"shard 0 was lost; the run restarts from {where}\n" in capsys.readouterr().err
