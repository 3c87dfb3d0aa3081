"""The contract of channels."""

from flowfn.channels import Channel as BaseChannel

__all__ = ["BaseChannel"]
