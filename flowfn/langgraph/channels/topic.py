"""A channel that collects values."""

from flowfn.channels import Topic

__all__ = ["Topic"]
