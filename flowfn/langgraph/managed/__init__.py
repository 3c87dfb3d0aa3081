"""Values of the state that are computed for each super-step."""

from flowfn.graph import IsLastStep, RemainingSteps

__all__ = ["IsLastStep", "RemainingSteps"]
