"""How properties are searched: few examples and no deadline (the machine may be busy); the same ones each time in CI.

Importing it is enough. `HYPOTHESIS_EXAMPLES=2000` searches deeper.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "25"))

settings.register_profile(
    "fallow",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fallow")
