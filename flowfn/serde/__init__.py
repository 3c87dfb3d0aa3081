"""Values to bytes and back, every type kept."""

from flowfn.serde.base import Serializer, preview
from flowfn.serde.typed import ATOMS, copied, decode, encode, register

__all__ = ["ATOMS", "Serializer", "copied", "decode", "encode", "preview", "register"]
