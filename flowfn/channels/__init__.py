"""Where values meet between super-steps: the channels, each with its rule for joining writes."""

from flowfn.channels.barrier import NamedBarrierValue, NamedBarrierValueAfterFinish
from flowfn.channels.base import Channel
from flowfn.channels.delta import DeltaChannel
from flowfn.channels.last_value import AnyValue, EphemeralValue, LastValue, LastValueAfterFinish, UntrackedValue
from flowfn.channels.reducer import BinaryOperatorAggregate
from flowfn.channels.topic import Topic

__all__ = [
    "AnyValue",
    "BinaryOperatorAggregate",
    "Channel",
    "DeltaChannel",
    "EphemeralValue",
    "LastValue",
    "LastValueAfterFinish",
    "NamedBarrierValue",
    "NamedBarrierValueAfterFinish",
    "Topic",
    "UntrackedValue",
]
