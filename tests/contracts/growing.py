"""A thread whose channels grow, one checkpoint a super-step, as the runtime stores and restores it."""

import operator
from collections.abc import Mapping

from flowfn.channels import BinaryOperatorAggregate, DeltaChannel, LastValue, Topic
from flowfn.checkpoint import cells
from flowfn.checkpoint.base import Delta, SaveCheckpoint
from flowfn.checkpoint.values import row_of
from flowfn.types import MISSING
from tests.contracts.saving import PLACE, RUN, checkpoint, config, metadata


def merged(held, writes):
    """A reducer in which order and step matter: a dict of lists, and how many steps it has joined."""
    held["steps"] = held.get("steps", 0) + 1
    for write in writes:
        for key, items in write.items():
            held[key] = [*held.get(key, ()), *items]
    return held


def new_channels():
    channels = {
        "log": BinaryOperatorAggregate(list, operator.add),
        "topic": Topic(object, accumulate=True),
        "delta": DeltaChannel(merged, dict, snapshot_frequency=10),
        "last": LastValue(object),
    }
    for name, channel in channels.items():
        channel.key = name
    return {name: channel.from_checkpoint(MISSING) for name, channel in channels.items()}


class Line:
    """One line of checkpoints; `at` is the newest one, `stored` what its row holds of each channel that moved."""

    def __init__(self, saver, place=PLACE):
        self.saver, self.place = saver, place
        self.channels, self.versions = new_channels(), {}
        self.at = self.stored = None

    def step(self, id, run=RUN, highest=None, **writes):
        """A super-step with these writes, channel → list; its versions are above `highest` and all of the line."""
        before = dict(self.versions)
        version = max([highest or 0, *before.values()]) + 1
        for name, values in writes.items():
            if self.channels[name].update(values):
                self.versions[name] = version
        moved = [name for name in self.versions if self.versions[name] != before.get(name)]
        dumps = self.saver.serde.dumps
        rows = {
            name: row_of(self.channels[name], self.place, name, version, before.get(name), dumps, cells.value_title)
            for name in moved
        }
        self.stored = {name: row for name, row in rows.items() if row is not None}
        saved = checkpoint(id, dict(self.versions))
        self.saver.save([SaveCheckpoint(self.place, saved, metadata("loop", 0, run), self.at, self.stored)])
        self.at = id
        return self

    def deltas(self):
        """The channels of which the newest checkpoint stored an addition."""
        return {name for name, row in self.stored.items() if isinstance(row, Delta)}

    def seen(self):
        """Channel → value, of those that have one."""
        return {name: channel.lent() for name, channel in self.channels.items() if channel.is_available()}

    def back_at(self, id=None):
        """Another line that goes on from a stored checkpoint, by default the newest one."""
        other = Line(self.saver, self.place)
        found = self.saver.load(self.place, id).checkpoint
        values = found.checkpoint["channel_values"]
        other.channels = {name: channel.restored(values.get(name, MISSING)) for name, channel in new_channels().items()}
        other.versions, other.at = dict(found.checkpoint["channel_versions"]), found.checkpoint["id"]
        return other


def shown(saver, id=None, place=PLACE):
    """The lists that `get_tuple` gives, by channel."""
    found = saver.get_tuple(config(id, place.thread, place.ns)).checkpoint["channel_values"]
    assert isinstance(found, Mapping)
    return {name: value for name, value in found.items() if name in ("log", "topic")}
