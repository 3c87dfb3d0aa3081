"""Names with a meaning of their own."""

from flowfn.graph import END, START
from flowfn.stream.messages import NOSTREAM as TAG_NOSTREAM

__all__ = ["END", "START", "TAG_NOSTREAM"]
