"""Addresses of this host, ranges of ports, and the synchronisation of clocks."""

import fcntl
import socket
import struct
import threading
import time

import pytest
import torch

from syncline.live.collective.process_group import start_group
from syncline.live.wire import clock as clocks
from syncline.live.wire import frames
from syncline.live.wire.interfaces import (
    SIOCGIFFLAGS,
    InterfaceError,
    address_on,
    address_towards,
    interface_of,
    interfaces,
)
from syncline.live.wire.sockets import address_of, dial, listen


def test_loopback_is_found_by_its_name_its_network_and_its_address():
    assert interfaces()["lo"] == "127.0.0.1"
    assert address_on("lo") == address_on("127.0.0.0/8") == address_towards("127.0.0.1") == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert address_on("") == ""
    assert interface_of("203.0.113.1") is None


@pytest.mark.parametrize("wanted", ["eth99", "203.0.113.0/24"])
def test_an_unknown_interface_is_named_with_those_that_exist(wanted):
    with pytest.raises(
        InterfaceError, match=rf"runner.interface={wanted} is not among its interfaces that are up: .*lo"
    ):
        address_on(wanted)


def test_an_interface_that_is_down_is_refused_and_not_waited_for(monkeypatch):
    """gloo would wait for the other members until the run's time to start is over."""
    real, down = fcntl.ioctl, struct.pack("16sH238x", b"lo", 0)
    monkeypatch.setattr(
        fcntl, "ioctl", lambda sock, what, asked: down if what == SIOCGIFFLAGS else real(sock, what, asked)
    )
    with pytest.raises(InterfaceError, match=r"runner.interface=lo is not among its interfaces that are up: none"):
        address_on("lo")


def test_an_interface_that_gloo_is_asked_for_must_be_there(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth99")
    with pytest.raises(InterfaceError, match=r"^GLOO_SOCKET_IFNAME=eth99 is not among its interfaces that are up: "):
        start_group(torch.device("cpu"), 0, 2, 2)


def test_an_unknown_host_is_named():
    with pytest.raises(InterfaceError, match=r"host nowhere\.invalid cannot be resolved \(.+\)"):
        address_towards("nowhere.invalid")


def test_the_first_free_port_of_a_range_is_taken_and_a_full_range_is_refused():
    first = listen("tcp:127.0.0.1:0")
    port = first.getsockname()[1]
    assert port < 65535
    with first, listen(f"tcp:127.0.0.1:{port}-{port + 9}") as second:
        assert port < second.getsockname()[1] <= port + 9
        with pytest.raises(OSError, match="in use"):
            listen(f"tcp:127.0.0.1:{port}-{port}")


def test_both_ends_of_a_connection_drop_a_silent_host_after_so_many_seconds_and_delay_no_message():
    with listen("tcp:127.0.0.1:0", dead_s=8) as listener, dial(address_of(listener), dead_s=8) as client:
        server, _ = listener.accept()
        with server:
            for sock in (client, server):
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2


@pytest.mark.parametrize("ahead_s", [0.0, 5000.0, -5000.0])
def test_another_clock_is_known_within_the_reported_error(ahead_s, monkeypatch):
    ours, theirs = socket.socketpair()

    def answer() -> None:
        for _ in range(clocks.CLOCK_REQUESTS):
            frames.receive_json(theirs)
            time.sleep(0.002)  # the request takes longer than the answer
            frames.send_json(theirs, {"now": time.monotonic() + ahead_s})

    with ours, theirs:
        thread = threading.Thread(target=answer)
        thread.start()
        clock = clocks.measure_clock(ours)
        thread.join()
    assert clock.error_s >= 0.001
    assert abs(clock.offset_s - ahead_s) <= clock.error_s
    assert clock.to_local(ahead_s + 1.0) == pytest.approx(1.0, abs=clock.error_s)
    if not ahead_s:
        assert clock.offset_s == 0.0
