"""Control messages: each survives JSON, and whatever else JSON holds is refused."""

import json
import re
from typing import get_args

import pytest

from syncline.live.wire import control_messages as messages
from syncline.live.wire.control_messages import ControlMessage, decode, encode
from syncline.live.wire.sockets import WireError
from syncline.progress import Totals

MESSAGES = [
    messages.Ready(),
    messages.Stopped(),
    messages.ReportActivity(),
    messages.Hello("shard", 1, "tcp:a:1", 7, 1e-5, "a", {"torch": "2"}),
    messages.ProgressReport(3, 96, 0.5, None, 1437),
    messages.ProgressReport(3, 96, 0.5, 1.25, 1437, 4),
    messages.SnapshotWritten(2),
    messages.Warn("text", 1.0),
    messages.Unreachable("why"),
    messages.RestartNeeded("why"),
    messages.Done("epochs", Totals(2).state_dict()),
    messages.Activity("starting"),
    messages.Addresses(["unix:a"]),
    messages.Begin(0.5),
    messages.Stop(1.0001),
    messages.WorkerLost(1, 7, "timed out"),
    messages.End("target"),
]


def test_all_messages_are_tested() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(ControlMessage))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_json(message: ControlMessage) -> None:
    assert decode(json.loads(json.dumps(encode(message)))) == message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "missing required field `kind`"),
        ({"kind": []}, "got `list` - at `$.kind`"),
        ({"kind": "Message"}, "Invalid value 'Message' - at `$.kind`"),
        ({"kind": "End"}, "End with the fields"),
        ({"kind": "Ready", "more": 1}, "unknown field `more`"),
        ({"kind": "SnapshotWritten", "number": True}, "got `bool` - at `$.number`"),
        ({"kind": "SnapshotWritten", "number": 1.0}, "got `float` - at `$.number`"),
        ({"kind": "Addresses", "addresses": [1]}, "got `int` - at `$.addresses[0]`"),
    ],
)
def test_anything_else_is_refused(data: dict[str, object], said: str) -> None:
    """More in tests/live/wire/test_hostile_peers.py: fields that are absent, of another type or too many."""
    with pytest.raises(WireError, match=re.escape(said)):
        decode(data)
