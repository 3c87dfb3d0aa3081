"""A channel of which only the writes are stored."""

from flowfn.channels import DeltaChannel

__all__ = ["DeltaChannel"]
