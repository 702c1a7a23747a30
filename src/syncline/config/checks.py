"""Errors of a config."""


class ConfigError(ValueError):
    """An invalid config; the message is one line: what was given, what is allowed."""

    def __init__(self, line: str) -> None:
        super().__init__("".join(char if char.isprintable() else repr(char)[1:-1] for char in line))


def check(condition: bool, rule: str, given: object) -> None:
    if not condition:
        raise ConfigError(f"{rule}, got {given}")


def check_choice(key: str, given: object, allowed: tuple[str, ...]) -> None:
    check(given in allowed, f"{key} must be one of {', '.join(allowed)}", given)
