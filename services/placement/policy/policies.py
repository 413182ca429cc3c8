"""The placement policies by their names, gathered from the modules of this folder that have a `POLICY`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module

from fallow.services.placement import policy
from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.shared.cluster.model.config import PLACEMENTS


class PolicyError(Exception):
    """Two policies have one name."""


def by_name(found: Iterable[tuple[str, PlacementPolicy]]) -> dict[str, PlacementPolicy]:
    """These policies, each with its module: in the order in which a cell file is told of them, then by name. In which
    order the modules were found decides nothing.
    """
    policies, modules = dict[str, PlacementPolicy](), dict[str, str]()
    for module, each in sorted(found, key=lambda pair: pair[0]):
        if each.name in policies:
            raise PolicyError(f"policy {each.name!r} stands in both {modules[each.name]} and {module}")
        policies[each.name], modules[each.name] = each, module
    first = [name for name in PLACEMENTS if name in policies]
    return {name: policies[name] for name in (*first, *sorted(policies.keys() - first))}


def _found() -> Iterable[tuple[str, PlacementPolicy]]:
    for module in pkgutil.walk_packages(policy.__path__, f"{policy.__name__}."):
        if module.name != __name__:
            declared = getattr(import_module(module.name), "POLICY", None)
            if isinstance(declared, PlacementPolicy):
                yield module.name, declared


POLICIES: dict[str, PlacementPolicy] = by_name(_found())
"""The placement policies by the names that a cell file may use."""
