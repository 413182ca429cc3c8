"""Shortest remaining time first: running jobs give way at no cost. A yardstick; on a pool of GPUs only."""

from fallow.bench.aryl.world.orders import ShortestRemaining
from fallow.bench.aryl.world.scheme import Information, Scheme

POLICY = Scheme("srpt", Information.ORACLE, ShortestRemaining, is_pooled_only=True)
