"""How much stack the worker has that asks: the operating system knows, and nobody else."""

from __future__ import annotations

import sys
import threading


class _Known(threading.local):
    size = 0


_known = _Known()


def stack_size() -> int:
    """Bytes of this worker's stack; very many where the system does not tell."""
    if not _known.size:
        try:
            _known.size = _asked()
        except (ImportError, AttributeError, OSError):
            _known.size = sys.maxsize
    return _known.size


def _asked() -> int:
    import ctypes  # Takes milliseconds, and few programs get here.

    if sys.platform == "win32":
        low, high = ctypes.c_size_t(), ctypes.c_size_t()
        ctypes.windll.kernel32.GetCurrentThreadStackLimits(ctypes.byref(low), ctypes.byref(high))
        return high.value - low.value
    system = ctypes.CDLL(None)
    system.pthread_self.restype = ctypes.c_void_p
    me = ctypes.c_void_p(system.pthread_self())
    if sys.platform == "darwin":
        system.pthread_get_stacksize_np.restype = ctypes.c_size_t
        return int(system.pthread_get_stacksize_np(me))
    attributes, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
    if system.pthread_getattr_np(me, attributes):
        raise OSError("the system does not tell")
    system.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    system.pthread_attr_destroy(attributes)
    return size.value
