"""The process group of a collective, and its subgroups: NCCL on GPUs, gloo elsewhere."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from syncline.live.wire.interfaces import address_on

Group = dist.ProcessGroup | None
"""The members of an exchange; None: all."""


class MemberLost(RuntimeError):
    """An exchange failed since another member is lost: the run must restart from its checkpoint."""


def start_group(
    device: torch.device, rank: int, world_size: int, local_world_size: int, store: Store | None = None
) -> None:
    """Join the group of all members: by NCCL if each has a GPU of its own, else by gloo.

    Args:
        local_world_size: members on this host; all hosts must have a GPU for each, or none.
        store: where the members find each other; None: as torchrun's environment says.

    Raises:
        InterfaceError: the environment asks gloo for an interface that is not there, or is down.
    """
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        address_on(name, "GLOO_SOCKET_IFNAME")
    own_gpu = device.type == "cuda" and torch.cuda.device_count() >= local_world_size
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if own_gpu else "gloo", store=store, rank=rank, world_size=world_size)


def serve_store(listener: socket.socket) -> TCPStore:
    """The store of the first member, where all find each other; it takes over this socket."""
    host, port = listener.getsockname()
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def find_store(address: str, timeout_s: float) -> TCPStore:
    """The first member's store, from another member."""
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    return TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout_s))


def make_groups(rank: int, partitions: Sequence[Sequence[Sequence[int]]]) -> list[Group]:
    """This member's group in each partition; all members create all groups, in the same order."""
    groups: dict[tuple[int, ...], Group] = {tuple(range(dist.get_world_size())): None}
    for partition in partitions:
        for members in map(tuple, partition):
            if members not in groups:
                groups[members] = dist.new_group(list(members))
    return [groups[next(tuple(members) for members in partition if rank in members)] for partition in partitions]


def all_gather(tensor: Tensor, group: Group = None, memory: Sequence[Tensor] = ()) -> list[Tensor]:
    """That of each member of the group, by rank; all are of one size. Raises MemberLost if it failed.

    By a ring: each sends to the next member what it received last. gloo's own takes up to 1.5 times as long on a slow
    network. There a member asks for data on the connection on which it sends: it must ask before it sends.

    Args:
        memory: that is used again: what another call for tensors of this size has returned.
    """
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    parts = [*memory[:size], *(torch.empty_like(tensor) for _ in range(size - len(memory)))]
    parts[rank].copy_(tensor)
    ranks = dist.get_process_group_ranks(group)
    after, before = ranks[(rank + 1) % size], ranks[rank - 1]
    try:
        for source in range(rank, rank - size + 1, -1):
            sent, received = parts[source % size], parts[(source - 1) % size]
            pair = [dist.P2POp(dist.irecv, received, before, group), dist.P2POp(dist.isend, sent, after, group)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()
    except RuntimeError as error:
        raise _lost(error, "all-gather") from None
    return parts


def send_and_receive(tensor: Tensor, to: Sequence[int], received: Mapping[int, Tensor]) -> None:
    """Send it to these ranks, and receive theirs from others, by rank. Raises MemberLost if it failed."""
    sends = [dist.P2POp(dist.isend, tensor, peer) for peer in to]
    receives = [dist.P2POp(dist.irecv, theirs, peer) for peer, theirs in received.items()]
    if not sends and not receives:
        return
    try:
        for work in dist.batch_isend_irecv([*receives, *sends]):
            work.wait()
    except RuntimeError as error:
        raise _lost(error, "exchange between peers") from None


def all_reduce(tensor: Tensor, group: Group = None, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    """Reduce over the group, in place. Raises MemberLost if it failed."""
    start_all_reduce(tensor, group, op)()


def start_all_reduce(
    tensor: Tensor, group: Group = None, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
) -> Callable[[], object]:
    """Begin to reduce over the group, in place. What is returned waits for the end; both raise MemberLost."""
    try:
        work = dist.all_reduce(tensor, op, group, async_op=True)
    except RuntimeError as error:
        raise _lost(error) from None

    def wait() -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise _lost(error) from None

    return wait


def _lost(error: RuntimeError, what: str = "all-reduce") -> MemberLost:
    return MemberLost(f"an {what} failed: {str(error).splitlines()[0]}")
