"""What running code may ask for."""

from flowfn.context import get_config, get_store, get_stream_writer

__all__ = ["get_config", "get_store", "get_stream_writer"]
