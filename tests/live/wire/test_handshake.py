"""The handshake over real sockets: peers without the secret are not admitted, and none of their bytes is parsed."""

import os
import socket
import threading
from functools import partial

import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from live.peers import SECRET, in_thread, outcome_of, pair

from syncline.live.wire import frames, handshake
from syncline.live.wire.handshake import MAX_UNPROVED, PREAMBLE, PROOF_BYTES, Listener
from syncline.live.wire.sockets import WireError, address_of, listen


def test_a_peer_with_the_secret_is_admitted_and_one_without_it_is_not(way):
    with listen(way) as listener:
        place = address_of(listener)
        with outcome_of(lambda: handshake.admit(listener.accept()[0], SECRET)) as outcome:
            sock = handshake.connect(place, SECRET)
        assert sock.getpeername() == listener.getsockname()
        with outcome[0], sock:
            outcome[0].sendall(b"hello")
            assert sock.recv(5) == b"hello"
        with outcome_of(lambda: handshake.admit(listener.accept()[0], SECRET)) as outcome, pytest.raises(WireError):
            handshake.connect(place, b"a guess")
        assert isinstance(outcome[0], WireError)
        assert "does not know the run's secret" in str(outcome[0])


def test_a_server_that_does_not_know_the_secret_is_refused_by_the_client():
    """It can skip checking the client, but it cannot prove the secret itself."""
    client, server = socket.socketpair()
    with client, server:
        server.sendall(PREAMBLE.pack(handshake.MAGIC, frames.VERSION, bytes(32)) + bytes(PROOF_BYTES))
        with pytest.raises(WireError, match="the server does not know"):
            handshake.client_handshake(client, SECRET)


@pytest.mark.parametrize(
    ("magic", "version", "said"),
    [(b"SYNCLINF", frames.VERSION, "not a Syncline process"), (handshake.MAGIC, frames.VERSION + 1, "wire format")],
)
def test_another_magic_or_version_is_refused_by_both_sides_even_with_a_proof(magic, version, said):
    with pair() as (client, server):
        server.sendall(PREAMBLE.pack(magic, version, bytes(32)))
        with pytest.raises(WireError, match=said):
            handshake.client_handshake(client, SECRET)
    with pair() as (client, server):
        with outcome_of(lambda: handshake.server_handshake(server, SECRET)) as outcome:
            _, _, asked = PREAMBLE.unpack(client.recv(PREAMBLE.size))
            proof = handshake._proof(SECRET, b"client", asked, bytes(32))
            client.sendall(PREAMBLE.pack(magic, version, bytes(32)) + proof)
        assert isinstance(outcome[0], WireError)
        assert said in str(outcome[0])


def test_what_a_client_sends_directly_after_its_proof_is_not_lost():
    with pair() as (client, server):
        thread = in_thread(
            lambda: (handshake.client_handshake(client, SECRET), frames.send_json(client, {"worker": 1}))
        )
        handshake.server_handshake(server, SECRET)
        assert frames.receive_json(server) == {"worker": 1}
        thread.join()


def test_replayed_and_reflected_proofs_are_refused():
    recorded = b""
    with pair() as (client, server):
        thread = in_thread(lambda: handshake.client_handshake(client, SECRET))
        nonce = os.urandom(32)
        server.sendall(PREAMBLE.pack(handshake.MAGIC, frames.VERSION, nonce))
        recorded = server.recv(1000)
        theirs = recorded[PREAMBLE.size - 32 : PREAMBLE.size]
        server.sendall(handshake._proof(SECRET, b"server", theirs, nonce))
        thread.join()
    for answer in (recorded, None):
        with pair() as (client, server):
            with outcome_of(partial(handshake.server_handshake, server, SECRET)) as outcome:
                asked = client.recv(1000)
                client.sendall(answer or asked + asked[-32:])
            assert isinstance(outcome[0], WireError)
            assert str(outcome[0]) == "the peer does not know the run's secret"


@scaled(50)
@given(st.binary(max_size=400))
def test_any_bytes_without_a_proof_are_a_wire_error(data):
    with pair() as (client, server):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with pytest.raises(WireError):
            handshake.server_handshake(server, SECRET)


def test_a_listener_outlives_moments_in_which_no_thread_can_be_started(monkeypatch):
    with listen("unix:") as sock:
        Listener(sock, SECRET, lambda served: served.close(), "acceptor")
        with monkeypatch.context() as patched:

            def no_thread(thread: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            patched.setattr(threading.Thread, "start", no_thread)
            for _ in range(MAX_UNPROVED + 1):
                with pytest.raises(ConnectionError):
                    handshake.connect(address_of(sock), SECRET)
        handshake.connect(address_of(sock), SECRET).close()
