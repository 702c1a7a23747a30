"""The launcher's part of a run of real processes; the processes are played by the test over real connections."""

import select
import threading
import time
from contextlib import closing, contextmanager

import pytest
from leaks import nothing_left, wait_until

from runners.attempt import CHECK_EVERY_S, Attempt
from runners.failures import RunFailed
from runners.hosts import RemoteHosts
from runners.observer import LiveObserver
from syncline.config import compose
from syncline.live.frames import send_json
from syncline.live.handshake import connect
from syncline.live.host_agent import versions
from syncline.live.messages import Done, Hello, ProgressReport, encode
from syncline.live.supervisor import Supervisor
from syncline.monitor import RunMonitor
from syncline.progress import Totals
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
def attempted(folder, host, *more):
    """An attempt whose processes are played by this host, and its monitor."""
    words = ["runner=local", "runner.evaluate=during", "strategy=asp", "model=softmax_regression", *more]
    config, _ = compose(words)
    monitor = RunMonitor(config, lambda row: None, lambda progress: None)
    with (
        nothing_left(),
        RecordWriter(folder / "record", config.as_dict(), with_events=False) as record,
        closing(LiveObserver(config, record, monitor, Supervisor())) as observer,
    ):
        (record.folder / "log").mkdir()
        attempt = Attempt(config, record.folder, observer, host(record.folder), 0)
        yield attempt, monitor
        attempt.end()


def test_a_target_ends_a_run_whose_shard_reports_all_the_time(tmp_path):
    with attempted(tmp_path, Shard, "target.value=0.5") as (attempt, monitor):
        monitor.add({"time_s": 1.0, "accuracy": 0.5})
        begun = time.monotonic()
        assert attempt.run().ended_by == "target"
        assert time.monotonic() - begun < LONG_S / 2


def test_a_run_whose_processes_have_ended_is_over_once_their_last_messages_are_there(tmp_path):
    with attempted(tmp_path, Ended) as (attempt, _):
        assert attempt.run().ended_by == "epochs"


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
