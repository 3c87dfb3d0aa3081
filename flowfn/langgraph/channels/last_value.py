"""Channels that take one value a super-step."""

from flowfn.channels import LastValue, LastValueAfterFinish

__all__ = ["LastValue", "LastValueAfterFinish"]
