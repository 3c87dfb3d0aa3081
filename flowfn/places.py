"""Where a flow's database and cache are: named, `FLOWFN_DB`, `pyproject.toml`, or beside the flow's file.

Relative addresses are resolved where they are written, never against the working directory, except in a session that
has no file.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from pathlib import Path
from typing import Any

from flowfn.cache import Cache, open_cache
from flowfn.checkpoint import Saver, open_saver
from flowfn.errors import ConfigError

_savers: dict[str, Saver] = {}
_caches: dict[str, Cache] = {}
_lock = threading.Lock()


def folder_of(func: Any) -> Path:
    """The folder of the file that a function is written in; the working directory for one typed at a prompt."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(func)))
    except (TypeError, OSError):
        return Path.cwd()
    return file.resolve().parent if file.is_file() else Path.cwd()


def address_for(folder: Path) -> str:
    """Address of the database for flows in that folder."""
    told = os.environ.get("FLOWFN_DB", "").strip()
    if told:
        return _resolved(told, folder)
    for above in (folder, *folder.parents):
        project = above / "pyproject.toml"
        if project.is_file():
            named = _table(project).get("db")
            if named is not None:
                if not isinstance(named, str) or not named.strip():
                    raise ConfigError(
                        f"`db` of `[tool.flowfn]` in `{project}` is the address of a database, not {named!r}."
                    )
                return _resolved(named, above)
            break
    return f"sqlite:///{folder / '.flowfn' / 'flows.db'}"


def _table(project: Path) -> dict[str, Any]:
    """The `[tool.flowfn]` table of a `pyproject.toml`."""
    import tomllib  # here, since few flows live in a project that says

    try:
        table = tomllib.loads(project.read_text("utf-8")).get("tool", {}).get("flowfn", {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"`{project}` cannot be read for its table `[tool.flowfn]`: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"`[tool.flowfn]` in `{project}` is no table.")
    return table


def _resolved(address: str, base: Path) -> str:
    """The address with a relative path made absolute."""
    scheme, colon, rest = address.partition("://")
    if colon and scheme != "sqlite":
        return address
    if colon and not rest.startswith("/"):
        raise ConfigError(f"`{address}` has two slashes: write `sqlite:///{rest}`, or four for an absolute path.")
    path = Path(rest[1:] if colon else address).expanduser()
    return f"sqlite:///{path if path.is_absolute() else base / path}"


def saver_for(func: Any) -> Saver:
    """The saver that keeps the runs of a flow without a checkpointer of its own; one object a database."""
    address = address_for(folder_of(func))
    with _lock:
        saver = _savers.get(address)
        if saver is None:
            saver = _savers[address] = open_saver(address)
            _tell(address)
    return saver


def cache_for(func: Any) -> Cache:
    """The cache of flows and tasks in that file that have none of their own; one object a folder."""
    folder = str(folder_of(func) / ".flowfn" / "cache")
    with _lock:
        cache = _caches.get(folder)
        if cache is None:
            cache = _caches[folder] = open_cache(folder)
    return cache


def _tell(address: str) -> None:
    """Say once where runs are kept."""
    print(f"flowfn keeps runs in {address.removeprefix('sqlite:///')}", file=sys.stderr)
