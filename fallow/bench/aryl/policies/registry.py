"""All schemes by their names, in the order of the paper's table."""

from __future__ import annotations

from fallow.bench.aryl.policies import afs, fifo, gandiva, lyra, opportunistic, pollux, random_reclaim, scf, sjf, srpt
from fallow.bench.aryl.world.scheme import Scheme

FILES = (fifo, sjf, srpt, lyra, opportunistic, random_reclaim, scf, gandiva, afs, pollux)
SCHEMES: dict[str, Scheme] = {file.POLICY.name: file.POLICY for file in FILES}
