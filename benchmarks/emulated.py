"""Several hosts on one machine: network namespaces on a bridge, each with a cable of a given rate (Linux, as root)."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

NETWORK = "10.77"  # 10.77.X.Y, X by the process that makes them
BURST_S = 0.002  # what a cable sends at once after a pause, in seconds of its bandwidth
BRIDGE = "02:00:00:00:00:fe"  # MAC address of the launcher's NIC


class CannotEmulate(RuntimeError):
    """This machine does not allow it; the message says why."""


class EmulatedHosts:
    """Hosts `names`, and the switch, on which a launcher may run; it and what it starts resolve their names.

    Args:
        count: of hosts.
        gbps: bandwidth of each cable, each way, Gbit/s.
        slow_start_after_idle: a message after a pause begins slowly, beside those that are under way (Linux's default).

    Raises:
        CannotEmulate.
    """

    def __init__(self, count: int, gbps: float = 1.0, slow_start_after_idle: bool = True) -> None:
        mark = f"syncline{os.getpid()}"
        net = f"{NETWORK}.{os.getpid() % 250}"
        self.names = [f"{mark}-{host}" for host in range(1, count + 1)]
        self.switch = f"{mark}-switch"
        self.addresses = [f"{net}.{host}" for host in range(1, count + 1)]
        self.launcher_address = f"{net}.254"
        if shutil.which("ip") is None or shutil.which("tc") is None:
            raise CannotEmulate("iproute2, which makes network namespaces, is absent")
        try:
            self._make(net, gbps, slow_start_after_idle)
        except CannotEmulate:
            self.close()
            raise

    def on(self, name: str) -> list[str]:
        """The words before a command that is to run there."""
        return ["ip", "netns", "exec", name]

    @property
    def overrides(self) -> list[str]:
        """Of a run over all of them."""
        command = "runner.start_command='ip netns exec {host}'"
        return ["runner=multinode", f"hosts=[{','.join(self.names)}]", "runner.start=command", command]

    def processes(self) -> list[int]:
        """All that run on the hosts and on the switch."""
        names = [*self.names, self.switch]
        return [int(pid) for name in names for pid in _run("ip", "netns", "pids", name).split()]

    def cut(self, name: str) -> None:
        """Unplug its cable from the switch: packets are lost without any notification."""
        _ip("-n", self.switch, "link", "set", self._port(name), "nomaster")

    def heal(self, name: str) -> None:
        _ip("-n", self.switch, "link", "set", self._port(name), "master", "br0")

    def lose(self, share: float) -> None:
        """From now on this share of the packets that arrive anywhere is lost, at random. Raises CannotEmulate."""
        for name in [*self.names, self.switch]:
            self._at_random(name, "input", share, "drop")

    def reorder(self, share: float) -> None:
        """From now on this share of a host's packets is sent later than those behind it. Raises CannotEmulate.

        They go through a class of their own, of a twentieth of the cable's rate, 1 Gbit/s.
        """
        for name in self.names:
            _run("tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
            for number, rate in (("1:1", "1gbit"), ("1:2", "50mbit")):
                limit = ("htb", "rate", rate, "burst", "16k", "quantum", "1514")
                _run("tc", "-n", name, "class", "replace", "dev", "eth0", "parent", "1:", "classid", number, *limit)
            self._at_random(name, "postrouting", share, "meta priority set 1:2")

    def _at_random(self, name: str, hook: str, share: float, action: str) -> None:
        """A rule of the packet filter of this host."""
        if shutil.which("nft") is None:
            raise CannotEmulate("nftables, which picks packets at random, is absent")
        rule = f"numgen random mod 1000 < {share * 1000:.0f} {action}"
        chain = f"chain picked {{\ntype filter hook {hook} priority 0;\n{rule}\n}}"
        _run(*self.on(name), "nft", f"table ip picked {{\n{chain}\n}}")

    def close(self) -> None:
        """Remove the hosts; processes on them lose their network."""
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        shutil.rmtree(self._etc, ignore_errors=True)

    def __enter__(self) -> "EmulatedHosts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _etc(self) -> Path:
        return Path("/etc/netns") / self.switch  # what `ip netns exec` shows as /etc

    def _port(self, name: str) -> str:
        return f"port{self.names.index(name)}"

    def _make(self, net: str, gbps: float, slow_start_after_idle: bool) -> None:
        switch = self.switch
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "set", "lo", "up")
        # A bridge without an address of its own takes its lowest port's: another one when that cable is cut.
        _ip("-n", switch, "link", "add", "br0", "address", BRIDGE, "type", "bridge", "forward_delay", "0")
        _ip("-n", switch, "addr", "add", f"{self.launcher_address}/24", "dev", "br0")
        _ip("-n", switch, "link", "set", "br0", "up")
        lines = ["127.0.0.1 localhost"]
        for name, address in zip(self.names, self.addresses, strict=True):
            port = self._port(name)
            _ip("netns", "add", name)
            _ip("link", "add", port, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            # Not this machine's: BBR takes long to notice that the bandwidth is free again.
            _ip("-n", name, "route", "replace", f"{net}.0/24", "dev", "eth0", "src", address, "congctl", "cubic")
            slow = f"echo {slow_start_after_idle:d} > /proc/sys/net/ipv4/tcp_slow_start_after_idle"
            _run(*self.on(name), "sh", "-c", slow)
            rate, burst = f"{1000 * gbps:g}mbit", f"{BURST_S * gbps * 1e9 / 8:.0f}"
            for place, device in ((name, "eth0"), (switch, port)):
                limit = ("tbf", "rate", rate, "burst", burst, "latency", "50ms")
                _run("tc", "-n", place, "qdisc", "replace", "dev", device, "root", *limit)
            lines.append(f"{address} {name}")
        self._etc.mkdir(parents=True, exist_ok=True)
        (self._etc / "hosts").write_text("\n".join(lines) + "\n")


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> str:
    """What it says."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotEmulate(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
