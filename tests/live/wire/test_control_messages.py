"""Control messages: each survives JSON. What else is refused: tests/live/wire/test_hostile_peers.py."""

import json
from typing import get_args

import pytest

from benchmarks.fuzz_frames import MESSAGES
from syncline.live.wire.control_messages import ControlMessage, decode, encode


def test_all_messages_are_tested() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(ControlMessage))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_json(message: ControlMessage) -> None:
    assert decode(json.loads(json.dumps(encode(message)))) == message
