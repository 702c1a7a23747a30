"""This host's network interfaces and their IPv4 addresses (Linux)."""

import socket
import struct
from ipaddress import IPv4Address, IPv4Network

SIOCGIFADDR, SIOCGIFFLAGS = 0x8915, 0x8913
IFF_UP = 1


class InterfaceError(ValueError):
    """This host has no such interface, or no route to another host; the message says which."""


def interfaces() -> dict[str, str]:
    """Address of each interface that is up and has one, by name."""
    import fcntl  # does not exist on all platforms that import this module

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:15])
            try:
                (flags,) = struct.unpack_from("H", fcntl.ioctl(sock, SIOCGIFFLAGS, asked), 16)
                answer = fcntl.ioctl(sock, SIOCGIFADDR, asked)
            except OSError:
                continue  # it has no address
            if flags & IFF_UP:
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def address_on(wanted: str, key: str = "runner.interface") -> str:
    """This host's address on the interface of this name, or in this network (10.0.0.0/16); empty for neither.

    Args:
        key: or variable, which asks for it.

    Raises:
        InterfaceError: it has none.
    """
    if not wanted:
        return ""
    found = interfaces()
    if "/" in wanted:
        network = IPv4Network(wanted)
        address = next((address for address in found.values() if IPv4Address(address) in network), None)
    else:
        address = found.get(wanted)
    if address is None:
        known = ", ".join(f"{name} {address}" for name, address in found.items())
        raise InterfaceError(f"{key}={wanted} is not among its interfaces that are up: {known or 'none'}")
    return address


def interface_of(address: str) -> str | None:
    """The name of the interface that has this address."""
    return next((name for name, each in interfaces().items() if each == address), None)


def address_towards(host: str) -> str:
    """This host's address for connections from another one; loopback if that is this host.

    Raises:
        InterfaceError: its name is unknown, or there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((host, 9))  # sends nothing
        except OSError as error:
            raise InterfaceError(f"host {host} cannot be resolved ({error.strerror})") from None
        return str(sock.getsockname()[0])
