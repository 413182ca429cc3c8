"""Binpack that looks at nodes only, which is best fit."""

from __future__ import annotations

from fallow.services.placement.policy import best_fit

POLICY = best_fit.POLICY._replace(name="binpack", what_for="Where one knows it by that name.")
