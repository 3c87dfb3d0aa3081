"""A channel whose writes are all taken to be equal."""

from flowfn.channels import AnyValue

__all__ = ["AnyValue"]
