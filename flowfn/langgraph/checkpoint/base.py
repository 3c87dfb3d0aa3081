"""The contract of savers."""

from flowfn.checkpoint import Checkpoint, CheckpointMetadata, CheckpointTuple
from flowfn.checkpoint import Saver as BaseCheckpointSaver

__all__ = ["BaseCheckpointSaver", "Checkpoint", "CheckpointMetadata", "CheckpointTuple"]
