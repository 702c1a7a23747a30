"""The agent on each of several hosts: python -m syncline.live.host_agent FOLDER ADDRESS [HOST].

    FOLDER    of the record: config.json, secret-agents, log/
    ADDRESS   of the launcher's control server for agents
    HOST      this host's name in the launcher's list; without it, Slurm's name of this node

Before anything is started each host listens at one address and tries to connect to those of the others, so that a
blocked port between them is found early and named. If the launcher is lost, the agent kills all processes that it
started; then it tries to reconnect for as long as a start may take, in case the network was interrupted.
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
from syncline.live import messages
from syncline.live.control import ControlClient, Lost, read_secret
from syncline.live.interfaces import InterfaceError, address_on, interface_of
from syncline.live.process import Job
from syncline.live.supervisor import SUPERVISOR, Supervisor, leave_signals_to_launcher
from syncline.live.transport import HANDSHAKE_S, Tls, address_of, dial, listen
from syncline.records.store import RecordError, read_config

RECONNECT_S = 3.0  # for one attempt to connect to the launcher again
REJECTED = 2  # exit code: this host cannot take part; the reason was printed


class HostRejected(ValueError):
    """This host cannot take part in the run; the message says why."""


class HostAgent:
    """Starts and ends the processes of this host, as the launcher asks.

    Args:
        folder: of the record.
        control_address: of the launcher's control server for agents.
        host: this host's name in the launcher's list.

    Raises:
        HostRejected: the record is not visible here, or the launcher cannot be reached.
    """

    def __init__(self, folder: Path, control_address: str, host: str) -> None:
        self._control_address, self._host = control_address, host
        try:
            self._secret = read_secret(folder / "secret-agents")
            self._runner = read_config(folder)["runner"]
        except (OSError, RecordError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise HostRejected(f"{folder} is not visible here ({why}); all hosts must share it") from None
        self._tls = Tls.of(self._runner["tls_cert"], self._runner["tls_key"])
        self._messages: SimpleQueue[messages.Message | Lost] = SimpleQueue()
        self._supervisor = Supervisor()
        self._supervisor.begin()  # imports torch meanwhile
        self._waiter: threading.Thread | None = None  # until the processes have ended
        self._is_ending = False  # the processes are being killed
        self._listener: socket.socket | None = None
        try:
            self._connect(min(HANDSHAKE_S, self._runner["start_timeout_s"] / 2))
        except OSError as error:
            self._supervisor.close()
            where = control_address.removeprefix("tcp:")
            raise HostRejected(f"the launcher cannot be reached at {where} ({error.strerror or error})") from None

    def run(self) -> None:
        """Until the launcher says that the run is over, or is lost for good."""
        try:
            while (message := self._messages.get()) is not messages.Signal.EXIT:
                if not isinstance(message, Lost):
                    self._handle(message)
                    continue
                self._end_processes()
                if not self._reconnect():
                    return
        finally:
            self._supervisor.close()

    def _connect(self, timeout_s: float) -> None:
        dead_s = self._runner["dead_s"]
        with dial(self._control_address, dead_s, timeout_s) as probe:
            self._address = address_on(self._runner["interface"]) or probe.getsockname()[0]
        self._control = ControlClient(
            self._control_address,
            self._secret,
            self._tls,
            messages.Hello("agent", -1, self._address, host=self._host, versions=versions()),
            self._messages.put,
            lambda: self._messages.put(Lost("the launcher is lost")),
            dead_s,
            timeout_s,
        )

    def _reconnect(self) -> bool:
        ends = time.monotonic() + self._runner["start_timeout_s"]
        while time.monotonic() < ends:
            try:
                self._connect(RECONNECT_S)
                return True
            except ConnectionRefusedError:
                return False  # its host is up, and the launcher has ended
            except OSError:
                time.sleep(RECONNECT_S / 10)
        return False

    def _handle(self, message: messages.Message) -> None:
        match message:
            case messages.Listen(folder):
                self._control.send(self._listen(folder))
            case messages.TryConnect(addresses, timeout_s):
                self._control.send(messages.ConnectResults(failures_to_connect(addresses, timeout_s)))
            case messages.Start(job):
                self._start(job)
            case messages.Add(job) if self._supervisor.is_busy:
                self._supervisor.add(job)
            case messages.Add(job):
                self._start(job)
            case messages.End():
                self._end_processes()
                self._control.send(messages.ProcessesEnded(why="", was_requested=True))

    def _listen(self, folder: str) -> messages.Listening:
        """A listening socket, to which the other hosts try to connect."""
        self._close_listener()
        if not Path(folder).is_dir():
            return messages.Listening(error=f"the folder {folder} is not visible there; all hosts must share it")
        try:
            self._listener = listen(self._listen_at())
        except OSError as error:
            return messages.Listening(error=f"it cannot listen at {self._listen_at()} ({error.strerror or error})")
        return messages.Listening(address_of(self._listener))

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _listen_at(self) -> str:
        return f"tcp:{self._address}:{self._runner['ports'] or 0}"

    def _start(self, job: Job) -> None:
        self._close_listener()
        self._end_processes()
        if not job.processes:
            return  # its workers are to be added
        interface = interface_of(self._address)
        own = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}
        self._supervisor.start(replace(job, listen_at=self._listen_at(), environment=job.environment | own))
        self._is_ending = False
        self._waiter = threading.Thread(target=self._wait, daemon=True, name="supervisor")
        self._waiter.start()

    def _wait(self) -> None:
        ended = self._supervisor.wait()
        if ended is not None and not self._is_ending:
            is_lost = ended.process == SUPERVISOR
            self._control.send(messages.ProcessesEnded(ended.why, was_requested=False, lost=is_lost))

    def _end_processes(self) -> None:
        """Kill all processes, and wait until they have ended."""
        if self._waiter is not None:
            self._is_ending = True
            self._supervisor.kill()
            self._waiter.join()
            self._waiter = None


def failures_to_connect(addresses: dict[str, str], timeout_s: float) -> dict[str, str]:
    """Why a connection fails, by host; hosts that can be reached are left out. `addresses`: by host."""

    def error_of(address: str) -> str:
        try:
            dial(address, timeout_s=timeout_s).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    with ThreadPoolExecutor(max(1, len(addresses))) as pool:
        errors = dict(zip(addresses, pool.map(error_of, addresses.values()), strict=True))
    return {host: error for host, error in errors.items() if error}


def versions() -> dict[str, str]:
    """What must be the same on all hosts; torch is not imported for it."""
    code = sha256()
    for path in sorted(Path(syncline.__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:2]))
    return {"syncline": code.hexdigest()[:12], "torch": metadata.version("torch"), "Python": python}


def main(arguments: list[str]) -> int:
    folder, control_address, *given = arguments
    host = given[0] if given else os.environ.get("SLURMD_NODENAME", socket.gethostname())
    leave_signals_to_launcher()
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        HostAgent(Path(folder), control_address, host).run()
    except (HostRejected, InterfaceError) as error:
        print(f"host {host}: {error}", file=sys.stderr)
        return REJECTED
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
