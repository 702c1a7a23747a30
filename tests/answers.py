"""What the commands of a strategy say of workers and pushes."""

from syncline.strategies.protocol import Apply, Command, Discard, Grant, Interrupt


def applied(commands: list[Command]) -> list[tuple[int, ...]]:
    """The pushes of each update."""
    return [command.pushes for command in commands if isinstance(command, Apply)]


def granted(commands: list[Command]) -> list[int]:
    """The workers that receive the weights."""
    return [command.worker for command in commands if isinstance(command, Grant)]


def discarded(commands: list[Command]) -> list[int]:
    """The pushes that will never be used."""
    return [command.push for command in commands if isinstance(command, Discard)]


def interrupted(commands: list[Command]) -> list[int]:
    """The workers that are cancelled."""
    return [command.worker for command in commands if isinstance(command, Interrupt)]
