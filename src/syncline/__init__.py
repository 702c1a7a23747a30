"""Synchronisation strategies of distributed SGD, side by side."""


def __getattr__(name: str) -> str:
    """`__version__`; read when it is asked for, since each start would pay for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import tomllib
    from importlib.metadata import PackageNotFoundError, version

    from syncline.installation import CHECKOUT

    try:
        return version(__name__)
    except PackageNotFoundError:  # a checkout that was never installed
        return str(tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"])
