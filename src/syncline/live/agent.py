"""What runs on each of several hosts: python -m syncline.live.agent FOLDER ADDRESS [HOST]. It starts its processes.

    FOLDER    of the record: config.yaml, secret-agents, log/
    ADDRESS   of the launcher
    HOST      its name in the launcher's list; without it, what Slurm calls this node

    launcher -> agent   listen (folder), reach (addresses, timeout_s), start (job), end, bye
    agent -> launcher   hello (role agent, ...), listening (address, or why), reached (failures), ended (why, asked)

Before anything is started each host listens at one address and tries to reach those of the others, so that a port that
is closed between them is found at once and named. If the launcher is lost, all that was started is killed; then the
launcher is looked for as long as a start may take, in case that the network was cut.
"""

import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue

import syncline
from syncline.live.control import ControlClient, Message
from syncline.live.interfaces import InterfaceError, address_on, interface_of
from syncline.live.process import Job, read_secret
from syncline.live.supervisor import Supervisor
from syncline.live.transport import HANDSHAKE_S, Tls, address_of, dial, listen
from syncline.records.store import RecordError, read_config

REDIAL_S = 3.0  # for one try to find the launcher again
UNFIT = 2  # exit code: this host cannot take part; the reason was printed


class HostRejected(ValueError):
    """This host cannot take part in the run; the message tells why."""


class Agent:
    """This host's part, while the line to the launcher holds and when it comes back.

    Args:
        folder: of the record.
        headquarters: the launcher's address for agents.
        host: this host's name in the launcher's list.

    Raises:
        HostRejected: the record is not to be seen here, or the launcher not to be reached.
    """

    def __init__(self, folder: Path, headquarters: str, host: str) -> None:
        self._folder, self._headquarters, self._host = folder, headquarters, host
        try:
            self._secret = read_secret(folder / "secret-agents")
            self._runner = read_config(folder)["runner"]
        except (OSError, RecordError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            raise HostRejected(f"{folder} is not to be seen here ({what}); all hosts must share it") from None
        self._tls = Tls(self._runner["tls_cert"], self._runner["tls_key"]) if self._runner["tls_cert"] else None
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._supervisor = Supervisor()
        self._supervisor.begin()  # imports torch meanwhile
        self._waiter: threading.Thread | None = None  # until what was started has ended
        self._is_told = False  # to end it
        self._listener: socket.socket | None = None
        try:
            self._meet(min(HANDSHAKE_S, self._runner["start_timeout_s"] / 2))
        except OSError as error:
            self._supervisor.close()
            place = headquarters.removeprefix("tcp:")
            raise HostRejected(f"the launcher cannot be reached at {place} ({error.strerror or error})") from None

    def run(self) -> None:
        """Until the launcher says that all is over, or is gone for good."""
        try:
            while (message := self._messages.get())["kind"] != "bye":
                if message["kind"] == "lost":
                    self._end()
                    if not self._meet_again():
                        return
                else:
                    self._obey(message)
        finally:
            self._supervisor.close()

    def _meet(self, timeout_s: float) -> None:
        dead_s = self._runner["leave_s"]
        with dial(self._headquarters, dead_s, timeout_s) as probe:
            self._address = address_on(self._runner["interface"]) or probe.getsockname()[0]
        hello = {
            "role": "agent",
            "index": -1,
            "address": self._address,
            "host": self._host,
            "versions": versions(),
        }
        self._line = ControlClient(
            self._headquarters,
            self._secret,
            self._tls,
            hello,
            self._messages.put,
            lambda: self._messages.put({"kind": "lost"}),
            dead_s,
            timeout_s,
        )

    def _meet_again(self) -> bool:
        ends = time.monotonic() + self._runner["start_timeout_s"]
        while time.monotonic() < ends:
            try:
                self._meet(REDIAL_S)
                return True
            except ConnectionRefusedError:
                return False  # its host is there, and it is not
            except OSError:
                time.sleep(REDIAL_S / 10)
        return False

    def _obey(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "listen":
            self._open(message["folder"])
        elif kind == "reach":
            failures = reach(message["addresses"], message["timeout_s"])
            self._line.tell("reached", failures=failures)
        elif kind == "start":
            self._start(Job(**message["job"]))
        elif kind == "end":
            self._end()
            self._line.tell("ended", why="", asked=True)

    def _open(self, folder: str) -> None:
        """A socket for the others to reach; it is enough that it listens."""
        self._close()
        if not Path(folder).is_dir():
            self._line.tell("listening", why=f"the folder {folder} is not to be seen there; all hosts must share it")
            return
        try:
            self._listener = listen(self._place())
        except OSError as error:
            self._line.tell("listening", why=f"it cannot listen at {self._place()} ({error.strerror or error})")
            return
        self._line.tell("listening", address=address_of(self._listener))

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _place(self) -> str:
        return f"tcp:{self._address}:{self._runner['ports'] or 0}"

    def _start(self, job: Job) -> None:
        self._close()
        self._end()
        interface = interface_of(self._address)
        own = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}
        self._supervisor.start(replace(job, listen=self._place(), environment=job.environment | own))
        self._is_told = False
        self._waiter = threading.Thread(target=self._await, daemon=True, name="supervisor")
        self._waiter.start()

    def _await(self) -> None:
        ended = self._supervisor.wait()
        if ended is not None and not self._is_told:
            self._line.tell("ended", why=ended.why, asked=False)

    def _end(self) -> None:
        """All that was started is killed."""
        if self._waiter is not None:
            self._is_told = True
            self._supervisor.kill()
            self._waiter.join()
            self._waiter = None


def reach(addresses: dict[str, str], timeout_s: float) -> dict[str, str]:
    """Which of these, by host, cannot be connected to, and why."""

    def why_not(address: str) -> str:
        try:
            dial(address, timeout_s=timeout_s).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    with ThreadPoolExecutor(max(1, len(addresses))) as pool:
        answers = dict(zip(addresses, pool.map(why_not, addresses.values()), strict=True))
    return {host: why for host, why in answers.items() if why}


def versions() -> dict[str, str]:
    """What must be the same on all hosts; torch is not imported for it."""
    code = sha256()
    for path in sorted(Path(syncline.__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:2]))
    return {"syncline": code.hexdigest()[:12], "torch": metadata.version("torch"), "Python": python}


def main(words: list[str]) -> int:
    folder, headquarters, *given = words
    host = given[0] if given else os.environ.get("SLURMD_NODENAME", socket.gethostname())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a batch system sends it to all; the launcher alone obeys
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        Agent(Path(folder), headquarters, host).run()
    except (HostRejected, InterfaceError) as error:
        print(f"host {host}: {error}", file=sys.stderr)
        return UNFIT
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
