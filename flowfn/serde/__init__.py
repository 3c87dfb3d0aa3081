"""Values to bytes and back, every type kept; signed where they could do harm, encrypted on request."""

from flowfn.serde.base import Serializer, preview
from flowfn.serde.encrypted import EncryptedSerializer
from flowfn.serde.keys import Keyring, default_keyring, key_file
from flowfn.serde.signed import Cell, key_id_of
from flowfn.serde.typed import ATOMS, copied, decode, encode, register

__all__ = [
    "ATOMS",
    "Cell",
    "EncryptedSerializer",
    "Keyring",
    "Serializer",
    "copied",
    "decode",
    "default_keyring",
    "encode",
    "key_file",
    "key_id_of",
    "preview",
    "register",
]
