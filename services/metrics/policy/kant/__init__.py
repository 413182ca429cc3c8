"""Kant's metrics: GAR, GFR, SOR, JTTED, and waits (section 4)."""
