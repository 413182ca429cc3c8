"""FIFO without loans: the baseline of the paper."""

from fallow.bench.aryl.world.orders import StrictFifo
from fallow.bench.aryl.world.scheme import Information, Scheme

POLICY = Scheme("fifo", Information.NONE, StrictFifo)
