"""Sync-Switch (Li, Mangoubi, Xu and Guo 2021): synchronous at first, then asynchronous.

    the first `after` updates:  on a push of worker p:  keep g_p; once every worker has pushed, update the weights with
                                                        the mean, grant all
    from then on:               on a push of worker p:  update the weights with g_p, grant p

Departures:
- The paper searches the share of the run after which to switch; `after` is given.
- Its configuration policy changes rate and momentum with the switch. `scale` is a factor on the rate; momentum stays.
- A worker that leaves before the switch is not waited for; one that joins takes part in the next update.
"""

from dataclasses import dataclass

from syncline.checks import ranged
from syncline.strategies.bsp import Bsp
from syncline.strategies.protocol import Apply, Command, Event, Grant, PushArrived, StrategyOptions


@dataclass(frozen=True, slots=True)
class SyncSwitchOptions(StrategyOptions):
    name: str = "sync_switch"
    after: int = ranged(100, ">= 0")  # synchronous updates
    scale: float = ranged(1.0, "> 0")  # of the learning rate after them

    @property
    def changes_rate(self) -> bool:
        return self.scale != 1.0

    def start(self, num_workers: int) -> "SyncSwitch":
        return SyncSwitch(num_workers, self)


class SyncSwitch(Bsp):
    def __init__(self, num_workers: int, options: SyncSwitchOptions) -> None:
        super().__init__(num_workers)
        self.after, self.scale = options.after, options.scale

    def handle(self, event: Event) -> list[Command]:
        is_over = self.version >= self.after
        if (
            is_over
            and isinstance(event, PushArrived)
            and event.worker in self.workers
            and event.version <= self.version
        ):
            self.version += 1
            return [Apply((event.push,), self.scale), Grant(event.worker, "nobody waits")]
        return super().handle(event)
