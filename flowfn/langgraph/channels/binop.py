"""A channel with a reducer."""

from flowfn.channels import BinaryOperatorAggregate

__all__ = ["BinaryOperatorAggregate"]
