"""A channel that holds its value for one super-step."""

from flowfn.channels import EphemeralValue

__all__ = ["EphemeralValue"]
