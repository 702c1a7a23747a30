"""The launcher's part of a run of real processes; the processes are played by the test over real connections."""

import select
import signal
import socket
import threading
import time
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace

import pytest
from leaks import nothing_left, wait_until

from runners import live
from runners.attempt import CHECK_EVERY_S, Attempt
from runners.failures import Restart, RunFailed
from runners.hosts import RemoteHosts
from runners.observer import LiveObserver
from runners.stop import StopRequested
from syncline.config import compose
from syncline.live.frames import receive_json, send_json
from syncline.live.handshake import connect
from syncline.live.host_agent import versions
from syncline.live.messages import Begin, Done, Hello, ProgressReport, Signal, Stop, decode, encode
from syncline.live.supervisor import Supervisor
from syncline.monitor import RunMonitor
from syncline.progress import Totals
from syncline.records.snapshots import state_path, write_state
from syncline.records.writer import RecordWriter

LONG_S = 3.0


class Shard:
    """A host with one shard, which reports all the time until it is told to end, and at most for so long."""

    listen_at = "unix:"

    def __init__(self, folder):
        self._folder, self._thread = folder, threading.Thread(target=self._report)

    def start(self, job):
        self._sock = connect(job.control_address, (self._folder / job.secret).read_bytes())
        self._thread.start()

    def _report(self):
        ends, message = time.monotonic() + LONG_S, Hello("shard", 0, "unix:there", pid=1)
        while time.monotonic() < ends and not select.select([self._sock], [], [], 0.01)[0]:
            send_json(self._sock, encode(message))
            message = ProgressReport(1, 32, 0.1, None, 1437)
        send_json(self._sock, encode(Done("target", Totals(1).state_dict())))

    def check(self):
        return None

    def where(self, role, index):
        return ""

    def end(self, wait_s):
        self._thread.join()
        self._sock.close()


class Ended(Shard):
    """The processes of a host have ended, and what they sent last is still under way."""

    def _report(self):
        for message in (Hello("shard", 0, "unix:there", pid=1), ProgressReport(1, 32, 0.1, None, 1437)):
            send_json(self._sock, encode(message))
        time.sleep(CHECK_EVERY_S / 2)
        send_json(self._sock, encode(Done("epochs", Totals(1).state_dict())))

    def check(self):
        return "all processes ended"


@contextmanager
def attempted(folder, host, *more, number=0):
    """An attempt whose processes are played by this host."""
    words = ["runner=local", "runner.evaluate=during", "strategy=asp", "model=softmax_regression", *more]
    config, _ = compose(words)
    monitor = RunMonitor(config, lambda row: None, lambda progress: None)
    with (
        nothing_left(),
        RecordWriter(folder / "record", config.as_dict(), with_events=False) as record,
        closing(LiveObserver(config, record, monitor, Supervisor())) as observer,
    ):
        (record.folder / "log").mkdir()
        attempt = Attempt(config, record.folder, observer, host(record.folder), number)
        yield attempt
        attempt.end()
        assert not list(record.folder.glob("secret-*"))


def test_a_target_ends_a_run_whose_shard_reports_all_the_time(tmp_path, monkeypatch):
    with attempted(tmp_path, Shard, "target.value=0.5") as attempt:
        monkeypatch.setattr(RunMonitor, "has_reached_target", True)
        begun = time.monotonic()
        assert attempt.run().ended_by == "target"
        assert time.monotonic() - begun < LONG_S / 2


def test_a_run_whose_processes_have_ended_is_over_once_their_last_messages_are_there(tmp_path):
    with attempted(tmp_path, Ended) as attempt:
        assert attempt.run().ended_by == "epochs"


class Killed(Shard):
    """Its shard is killed before it is ready."""

    def _report(self):
        send_json(self._sock, encode(Hello("shard", 0, "unix:there", pid=1)))
        self._sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("number", "error"), [(0, RunFailed), (1, Restart)], ids=["the first start", "a restart"])
def test_a_loss_before_the_beginning_restarts_the_run_again_if_it_is_restarting(number, error, tmp_path):
    with attempted(tmp_path, Killed, number=number) as attempt, pytest.raises(error, match=r"shard 0 .* was lost"):
        attempt.run()


class Hostless(Shard):
    """Its processes cannot be started."""

    def start(self, job):
        raise RunFailed("no host")

    def end(self, wait_s):
        pass


def test_an_attempt_that_cannot_start_leaves_nothing(tmp_path):
    with attempted(tmp_path, Hostless) as attempt, pytest.raises(RunFailed, match="no host"):
        attempt.run()


class Stopping(Shard):
    """The first member of a collective; the launcher is asked to stop, and it writes a checkpoint some time later."""

    asked, writes, has_begun = signal.SIGUSR1, True, False

    def _report(self):
        for message in (Hello("worker", 0, "tcp:there", pid=1), ProgressReport(1, 32, 60.0, None, 1437), Signal.READY):
            send_json(self._sock, encode(message))
        while not isinstance(message := decode(receive_json(self._sock)), Stop):
            self.has_begun = isinstance(message, Begin)
        self._answer(message.checkpoint)

    def _answer(self, checkpoint):
        time.sleep(0.5)
        if self.writes:
            path = state_path(self._folder / "checkpoint", checkpoint, 0)
            write_state(path, {}, {"totals": {"updates": 8}})
        send_json(self._sock, encode(Signal.STOPPED))

    def check(self):
        if self.has_begun:
            raise StopRequested(self.asked)


BSP = ["strategy=bsp", "strategy.topology=allreduce", "cluster.workers=1", "optimizer.momentum=0"]


def kept(folder, host, before=False):
    """What can be resumed after a stop; another checkpoint may have been there before."""
    with attempted(folder, host, *BSP) as attempt:
        if before:
            write_state(state_path(folder / "record" / "checkpoint", 1.0, 0), {}, {"totals": {"updates": 1234}})
        with pytest.raises(StopRequested) as stop:
            attempt.run()
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

    def end(self, wait_s):
        self._sock.shutdown(socket.SHUT_RDWR)
        super().end(wait_s)


def test_a_stop_waits_no_longer_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("runners.attempt.STOP_MOST_S", 0.1)
    assert kept(tmp_path, Hanging) == ""


def test_a_stop_without_its_checkpoint_names_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(Stopping, "writes", False)
    assert kept(tmp_path, Stopping, before=True) == "record stopped; its last checkpoint is of update 1,234"


@pytest.mark.parametrize(("number", "where"), [(None, "the beginning"), (1.0, "its last checkpoint")], ids=str)
def test_a_restart_says_from_where(number, where, tmp_path, monkeypatch, capsys):
    class Once:
        """The first attempt loses a shard."""

        def __init__(self, config, folder, observer, hosts, number):
            self._number = number

        def run(self):
            if not self._number:
                raise Restart("shard 0 was lost")

        def end(self):
            pass

    monkeypatch.setattr(live, "Attempt", Once)
    if number is not None:
        write_state(state_path(tmp_path / "checkpoint", number, 0), {}, {})
    other = SimpleNamespace(begin=str, lost=str, restarted=str, folder=tmp_path)  # supervisor, observer and record
    live._attempts(compose(["runner=local", "strategy=asp"])[0], other, other, other)
    assert f"shard 0 was lost; the run restarts from {where}\n" in capsys.readouterr().err


def test_an_agent_that_is_lost_before_the_launcher_looks_is_awaited_again(tmp_path):
    words = ["runner=multinode", "runner.hosts=[127.0.0.1]", "runner.start=print", "runner.start_timeout_s=0.2"]
    with nothing_left():
        hosts = RemoteHosts(compose([*words, "strategy=asp"])[0], tmp_path)
        with connect(hosts._server.address, (tmp_path / "secret-agents").read_bytes()) as sock:
            send_json(sock, encode(Hello("agent", -1, "127.0.0.1", pid=1, host="127.0.0.1", versions=versions())))
        assert wait_until(lambda: hosts._server.messages.qsize() == 2)
        with pytest.raises(RunFailed, match=r"host 127\.0\.0\.1: its agent did not connect to"):
            hosts.prepare()
        hosts.close()
