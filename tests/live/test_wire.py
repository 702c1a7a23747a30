"""Frames and the handshake, over real sockets: what is sent arrives, and nothing else is believed."""

import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.live import transport, wire
from syncline.live.transport import WireError, address_of, listen
from syncline.live.wire import HEADER, INTRODUCTION, MAX_JSON, PROOF, Frame, Kind, Reader

SECRET = b"the run's own"
ADDRESSES = ["unix:", "tcp:127.0.0.1:0"]

frames = st.builds(
    Frame,
    kind=st.sampled_from(Kind),
    worker=st.integers(0, 2**32 - 1),
    iteration=st.integers(-(2**63), 2**63 - 1),
    version=st.integers(-(2**63), 2**63 - 1),
    tag=st.integers(-(2**63), 2**63 - 1),
    cut=st.integers(0, 2**32 - 1),
    wasted=st.integers(0, 2**32 - 1),
    size=st.integers(0, 2**64 - 1),
    **{
        name: st.floats(allow_nan=False)
        for name in (
            "loss",
            "started_at",
            "computed_at",
            "slow_s",
            "delay_s",
            "pulled_at",
            "pull_delay_s",
            "push_delay_s",
        )
    },
)


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def in_thread(action) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@given(frames)
def test_a_frame_survives_packing(frame):
    assert asdict(wire.parse(frame.pack())) == asdict(frame)


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_any_header_is_a_frame_or_a_wire_error(header):
    try:
        frame = wire.parse(header)
    except WireError:
        return
    assert frame.kind in Kind


@pytest.mark.parametrize(("kind", "version"), [(1, wire.VERSION + 1), (0, wire.VERSION), (99, wire.VERSION)])
def test_another_version_or_kind_is_refused(kind, version):
    header = bytearray(Frame(Kind.PUSH).pack())
    header[0] = kind
    header[2:4] = version.to_bytes(2, "big")
    with pytest.raises(WireError):
        wire.parse(header)


@scaled(30)
@given(
    st.lists(st.lists(st.integers(0, 200_000), min_size=1, max_size=3), min_size=1, max_size=5),
    st.integers(1, 100_000),
)
def test_frames_arrive_whole_and_in_order_however_they_are_cut(sizes, step):
    """A row of frames of one to three parts each, forwarded in pieces of `step` bytes."""
    payloads = [[os.urandom(size) for size in parts] for parts in sizes]
    with pair() as (client, entrance), pair() as (exit_, server):

        def forward() -> None:
            while data := entrance.recv(step):
                exit_.sendall(data)
            exit_.shutdown(socket.SHUT_WR)

        def send_all() -> None:
            for number, parts in enumerate(payloads):
                wire.send(client, Frame(Kind.PUSH, iteration=number), [memoryview(part) for part in parts])
            client.shutdown(socket.SHUT_WR)

        threads = [in_thread(forward), in_thread(send_all)]
        reader = Reader(server)
        for number, parts in enumerate(payloads):
            frame = reader.next()
            assert frame.iteration == number
            views = [memoryview(bytearray(len(part))) for part in parts]
            reader.payload(frame, views)
            assert [bytes(view) for view in views] == parts
        with pytest.raises(WireError, match="closed"):
            reader.next()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_payload_of_another_length_is_refused_before_a_byte_of_it_is_used(difference):
    with pair() as (client, server):
        wire.send(client, Frame(Kind.PUSH), [memoryview(b"x" * (100 + difference))])
        reader = Reader(server)
        place = bytearray(100)
        with pytest.raises(WireError, match="expected 100"):
            reader.payload(reader.next(), [memoryview(place)])
        assert place == bytes(100)


@pytest.mark.parametrize("cut", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 50])
def test_a_connection_that_ends_within_a_frame_is_a_wire_error(cut):
    with pair() as (client, server):
        frame = Frame(Kind.PUSH, size=100)
        client.sendall((frame.pack() + bytes(100))[:cut])
        client.close()
        reader = Reader(server)
        with pytest.raises(WireError, match="closed"):
            reader.payload(reader.next(), [memoryview(bytearray(100))])


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        (Kind.PUSH, b"{}", "PUSH where JSON"),
        (Kind.JSON, b"{", "broken JSON"),
        (Kind.JSON, b"\xff\xfe", "broken JSON"),
        (Kind.JSON, b"[1]", "no object"),
        (Kind.JSON, b"[" * 100_000, "broken JSON"),
    ],
)
def test_json_that_is_none_is_refused(kind, payload, said):
    with pair() as (client, server):
        thread = in_thread(lambda: wire.send(client, Frame(kind), [memoryview(payload)]))
        with pytest.raises(WireError, match=said):
            wire.receive_json(server)
        thread.join()


def test_json_beyond_the_limit_is_refused_unread():
    with pair() as (client, server):
        client.sendall(Frame(Kind.JSON, size=MAX_JSON + 1).pack())
        with pytest.raises(WireError, match="at most"):
            wire.receive_json(server)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_json_arrives_as_it_was(message):
    with pair() as (client, server):
        wire.send_json(client, message)
        assert wire.receive_json(server) == json.loads(json.dumps(message))


# The handshake


@contextmanager
def served(address: str, secret: bytes) -> Iterator[tuple[str, list]]:
    """A server that lets one connection in, or says why not."""
    listener = listen(address)
    outcome = []

    def serve() -> None:
        raw, _ = listener.accept()
        try:
            with wire.welcome(raw, secret) as sock:
                outcome.append("in")
                sock.sendall(b"hello")
        except (WireError, OSError) as error:
            outcome.append(error)

    thread = in_thread(serve)
    try:
        yield address_of(listener), outcome
    finally:
        thread.join()
        listener.close()


@pytest.mark.parametrize("address", ADDRESSES)
def test_who_knows_the_secret_is_let_in(address):
    with served(address, SECRET) as (place, outcome), wire.connect(place, SECRET) as sock:
        assert sock.recv(5) == b"hello"
    assert outcome == ["in"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_who_does_not_know_it_is_not(address):
    with served(address, SECRET) as (place, outcome), pytest.raises(WireError):
        wire.connect(place, b"a guess")
    assert isinstance(outcome[0], WireError)
    assert "does not know the run's secret" in str(outcome[0])


def test_a_server_that_does_not_know_the_secret_is_refused_by_the_client():
    """It can let anybody in, but it cannot prove."""
    client, server = socket.socketpair()
    with client, server:
        server.sendall(INTRODUCTION.pack(wire.MAGIC, wire.VERSION, bytes(32)) + bytes(PROOF))
        with pytest.raises(WireError, match="the server does not know"):
            wire.prove(client, SECRET)


@pytest.mark.parametrize(
    ("magic", "version", "said"),
    [(b"SYNCLINF", wire.VERSION, "none of ours"), (wire.MAGIC, wire.VERSION + 1, "wire format")],
)
def test_another_magic_or_version_is_refused_by_both_sides_even_with_a_proof(magic, version, said):
    with pair() as (client, server):
        server.sendall(INTRODUCTION.pack(magic, version, bytes(32)))
        with pytest.raises(WireError, match=said):
            wire.prove(client, SECRET)
    with pair() as (client, server):
        failed = []

        def admit() -> None:
            try:
                wire.admit(server, SECRET)
            except WireError as error:
                failed.append(str(error))

        thread = in_thread(admit)
        _, _, asked = INTRODUCTION.unpack(client.recv(INTRODUCTION.size))
        client.sendall(INTRODUCTION.pack(magic, version, bytes(32)) + wire._proof(SECRET, b"client", asked, bytes(32)))
        thread.join()
        assert len(failed) == 1
        assert said in failed[0]


def test_what_a_client_says_right_behind_its_proof_is_not_lost():
    with pair() as (client, server):
        thread = in_thread(lambda: (wire.prove(client, SECRET), wire.send_json(client, {"worker": 1})))
        wire.admit(server, SECRET)
        assert wire.receive_json(server) == {"worker": 1}
        thread.join()


def test_a_recorded_proof_and_a_reflected_one_are_worth_nothing():
    recorded = b""
    with pair() as (client, server):
        thread = in_thread(lambda: wire.prove(client, SECRET))
        nonce = os.urandom(32)
        server.sendall(INTRODUCTION.pack(wire.MAGIC, wire.VERSION, nonce))
        recorded = server.recv(1000)
        theirs = recorded[INTRODUCTION.size - 32 : INTRODUCTION.size]
        server.sendall(wire._proof(SECRET, b"server", theirs, nonce))
        thread.join()
    for answer in (recorded, None):
        with pair() as (client, server):
            failed = []

            def admit(server=server, failed=failed) -> None:
                try:
                    wire.admit(server, SECRET)
                except WireError as error:
                    failed.append(str(error))

            thread = in_thread(admit)
            asked = client.recv(1000)
            client.sendall(answer or asked + asked[-32:])
            thread.join()
            assert failed == ["the peer does not know the run's secret"]


@scaled(50)
@given(st.binary(max_size=400))
def test_whatever_a_stranger_says_is_a_wire_error(data):
    with pair() as (client, server):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with pytest.raises(WireError):
            wire.admit(server, SECRET)


def test_a_stranger_that_dribbles_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(wire, "HANDSHAKE_S", 0.3)
    with pair() as (client, server):
        stop = threading.Event()

        def dribble() -> None:
            while not stop.wait(0.02):
                client.send(b"S")

        thread = in_thread(dribble)
        begun = time.monotonic()
        with pytest.raises(WireError, match="no proof of the secret within"):
            wire.admit(server, SECRET)
        assert time.monotonic() - begun < 2
        stop.set()
        thread.join()


def test_the_secret_is_its_owners_alone_and_new_each_time(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    first = wire.make_secret(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == first
    assert wire.make_secret(path) != first


def test_addresses_are_found_again():
    for address in ADDRESSES:
        with listen(address) as listener, transport.dial(address_of(listener)) as sock:
            assert sock.getpeername() == listener.getsockname()
