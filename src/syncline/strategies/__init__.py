"""Synchronisation strategies: one small state machine a file, of the standard library and msgspec. None imports
another, except AdaSync those whose K it sets, and Sync-Switch BSP."""

from syncline.strategies.ad_psgd import AdPsgdOptions
from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.gossip import GossipOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.mindflayer import MindflayerOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.rennala import RennalaOptions
from syncline.strategies.ringmaster import RingmasterOptions
from syncline.strategies.ssp import SspOptions
from syncline.strategies.sync_switch import SyncSwitchOptions

STRATEGIES: dict[str, type[StrategyOptions]] = {
    "ad_psgd": AdPsgdOptions,
    "adasync": AdasyncOptions,
    "asp": AspOptions,
    "backup": BackupOptions,
    "bsp": BspOptions,
    "ds_sync": DsSyncOptions,
    "dssp": DsspOptions,
    "gossip": GossipOptions,
    "k_async": KAsyncOptions,
    "k_batch_async": KBatchAsyncOptions,
    "k_batch_sync": KBatchSyncOptions,
    "k_sync": KSyncOptions,
    "mindflayer": MindflayerOptions,
    "psp": PspOptions,
    "rennala": RennalaOptions,
    "ringmaster": RingmasterOptions,
    "ssp": SspOptions,
    "sync_switch": SyncSwitchOptions,
}
