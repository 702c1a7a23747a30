"""Synchronisation strategies of distributed SGD, side by side."""


def __getattr__(name: str) -> str:
    """`__version__`, of the installed package; read when it is asked for, since each start would pay for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version(__name__)
