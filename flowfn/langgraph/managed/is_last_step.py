"""How near the recursion limit is."""

from flowfn.graph import IsLastStep, RemainingSteps

__all__ = ["IsLastStep", "RemainingSteps"]
