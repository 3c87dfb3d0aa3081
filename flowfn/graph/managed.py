"""Values of the state that are computed for each super-step and never stored."""

from __future__ import annotations

from typing import Annotated


class ManagedValue:
    """A value that depends on nothing but where the run stands; stands in an annotation: `Annotated[T, ThisClass]`."""

    @staticmethod
    def value(left: int) -> object:
        """The value in a super-step that is the first of `left` that may come."""
        raise NotImplementedError


class IsLastStepValue(ManagedValue):
    @staticmethod
    def value(left: int) -> bool:
        return left == 1


class RemainingStepsValue(ManagedValue):
    @staticmethod
    def value(left: int) -> int:
        return left


IsLastStep = Annotated[bool, IsLastStepValue]
"""Annotates a key of a state that is True in the last super-step that the recursion limit allows."""

RemainingSteps = Annotated[int, RemainingStepsValue]
"""Annotates a key of a state that says how many super-steps the recursion limit still allows."""
