"""Channels that wait for several writers."""

from flowfn.channels import NamedBarrierValue, NamedBarrierValueAfterFinish

__all__ = ["NamedBarrierValue", "NamedBarrierValueAfterFinish"]
