"""How cases are named that have no name of their own: alike in every process, so without addresses and in order."""

import re


def shown(value):
    text = repr(sorted(value, key=repr)) if isinstance(value, set | frozenset) else repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)
