"""Frames over real sockets: what is sent arrives, and nothing else is accepted."""

import json
import os
import socket

import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from live.peers import in_thread, pair

from syncline.live.wire import frames
from syncline.live.wire.frames import HEADER, REPORT, Header, Kind, Reader, pack_report, unpack_report
from syncline.live.wire.sockets import WireError
from syncline.server.report import PushReport

int64 = st.integers(-(2**63), 2**63 - 1)
count = st.integers(0, 2**32 - 1)
real = st.floats(allow_nan=False)
size, numbers = st.integers(0, 2**64 - 1), (int64, int64, real)
with_payload = st.builds(Header, st.sampled_from([Kind.JSON, Kind.PUSH, Kind.BLOCK, Kind.HELD]), size, *numbers)
without_payload = st.builds(Header, st.sampled_from([Kind.STOP, Kind.REPEAT, Kind.SAVE]), st.just(0), *numbers)
reports = st.builds(PushReport, count, int64, int64, int64, real, count, count, *[real] * 7)


@given(with_payload | without_payload)
def test_a_header_survives_packing(header):
    assert frames.parse(header.pack()) == header


@given(reports)
def test_a_report_survives_packing(report):
    data = pack_report(report)
    assert len(data) == REPORT.size
    assert unpack_report(data) == report


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_any_header_is_a_frame_or_a_wire_error(header):
    try:
        frame = frames.parse(header)
    except WireError:
        return
    assert frame.kind in Kind


@scaled(30)
@given(
    st.lists(st.lists(st.integers(0, 200_000), min_size=1, max_size=3), min_size=1, max_size=5), st.integers(1, 100_000)
)
def test_frames_arrive_complete_and_in_order_however_they_are_split(sizes, step):
    """Several frames of one to three parts each, forwarded in pieces of `step` bytes."""
    payloads = [[os.urandom(size) for size in parts] for parts in sizes]
    with pair() as (client, entrance), pair() as (exit_, server):
        client.settimeout(60)  # then a call sends a part

        def forward() -> None:
            while data := entrance.recv(step):
                exit_.sendall(data)
            exit_.shutdown(socket.SHUT_WR)

        def send_all() -> None:
            for number, parts in enumerate(payloads):
                frames.send(client, Header(Kind.PUSH, iteration=number), [memoryview(part) for part in parts])
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
        frames.send(client, Header(Kind.PUSH), [memoryview(b"x" * (100 + difference))])
        reader = Reader(server)
        place = bytearray(100)
        with pytest.raises(WireError, match="expected 100"):
            reader.payload(reader.next(), [memoryview(place)])
        assert place == bytes(100)


@pytest.mark.parametrize("cut", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 50])
def test_a_connection_that_ends_within_a_frame_is_a_wire_error(cut):
    with pair() as (client, server):
        frame = Header(Kind.PUSH, size=100)
        client.sendall((frame.pack() + bytes(100))[:cut])
        client.close()
        reader = Reader(server)
        with pytest.raises(WireError, match="closed"):
            reader.payload(reader.next(), [memoryview(bytearray(100))])


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_json_arrives_as_it_was(message):
    with pair() as (client, server):
        frames.send_json(client, message)
        assert frames.receive_json(server) == json.loads(json.dumps(message))
