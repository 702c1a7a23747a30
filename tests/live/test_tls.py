"""TLS beneath the handshake: one pinned certificate, and concurrent reads and writes."""

import os
import threading

import pytest

from syncline.live import frames, handshake, transport
from syncline.live.frames import Header, Kind, Reader
from syncline.live.transport import WireError, address_of, listen

SECRET = b"the run's own"


def accept(listener, tls, outcome):
    raw, _ = listener.accept()
    try:
        outcome.append(handshake.admit(raw, SECRET, tls))
    except WireError as error:
        outcome.append(error)


def test_both_sides_send_megabytes_concurrently_and_every_byte_arrives(two_certificates):
    tls, _ = two_certificates
    outcome = []
    with listen("tcp:127.0.0.1:0") as listener:
        thread = threading.Thread(target=accept, args=(listener, tls, outcome))
        thread.start()
        client = handshake.connect(address_of(listener), SECRET, tls)
        thread.join()
    server = outcome[0]
    there, back = os.urandom(5_000_000), os.urandom(5_000_000)
    received = {}

    def read(name, sock):
        place = memoryview(bytearray(5_000_000))
        reader = Reader(sock)
        for _ in range(3):
            reader.payload(reader.next(), [place])
        received[name] = bytes(place)

    def write(sock, data):
        for _ in range(3):
            frames.send(sock, Header(Kind.PUSH), [memoryview(data)])

    threads = [
        threading.Thread(target=read, args=("server", server)),
        threading.Thread(target=read, args=("client", client)),
    ]
    threads += [
        threading.Thread(target=write, args=(client, there)),
        threading.Thread(target=write, args=(server, back)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == {"server": there, "client": back}
    client.close()
    with pytest.raises(WireError, match="closed"):
        Reader(server).next()
    server.close()


@pytest.mark.parametrize("with_tls", [True, False])
def test_a_client_with_another_certificate_or_none_is_refused(two_certificates, with_tls, monkeypatch):
    for module in (transport, handshake):  # without TLS each side waits for the other
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.5)
    tls, other = two_certificates
    outcome = []
    with listen("tcp:127.0.0.1:0") as listener:
        thread = threading.Thread(target=accept, args=(listener, tls, outcome))
        thread.start()
        with pytest.raises(WireError):
            handshake.connect(address_of(listener), SECRET, other if with_tls else None)
        thread.join()
    assert isinstance(outcome[0], WireError)
