"""For tests of what is refused: the one line in which its error says so."""

from collections.abc import Callable
from typing import Any

import pytest


def refusal(kind: type[Exception] | tuple[type[Exception], ...], call: Callable[..., object], *given: Any) -> str:
    """The words of the error that this call raises with what it is given; they must be one line."""
    with pytest.raises(kind) as raised:
        call(*given)
    line = str(raised.value)
    assert line
    assert "\n" not in line, line
    return line
