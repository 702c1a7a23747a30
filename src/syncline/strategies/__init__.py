"""Who waits for whom: one small state machine a file. Standard library only; no strategy imports another."""

from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.ssp import SspOptions

STRATEGIES: dict[str, type[StrategyOptions]] = {
    "asp": AspOptions,
    "bsp": BspOptions,
    "dssp": DsspOptions,
    "ssp": SspOptions,
}
