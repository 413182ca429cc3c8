"""Shortest job first by exact run times, without loans and scaling."""

from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.scheme import Information, Scheme

POLICY = Scheme("sjf", Information.ORACLE, ShortestFirst)
