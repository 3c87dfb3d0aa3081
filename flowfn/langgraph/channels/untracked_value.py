"""A channel that is never stored."""

from flowfn.channels import UntrackedValue

__all__ = ["UntrackedValue"]
