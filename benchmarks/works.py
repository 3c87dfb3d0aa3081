"""The rows of the table, and what is wanted of each. A new row is one new entry."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import ormsgpack

from benchmarks import bare, caches, flows, graphs, values
from benchmarks.harness import Entrant, Sizes, Work, cpu_of_all, reported
from benchmarks.libraries import FLOWFN, LANGGRAPH
from benchmarks.trials import (
    LongRun,
    Use,
    answers,
    append_bytes,
    append_cpu,
    asked,
    awaited_in_memory,
    awaited_on_sqlite,
    bytes_on_sqlite,
    each,
    in_memory,
    on_sqlite,
    once,
    python,
    questions,
    replay,
)

STRAIGHT = 1.3
"""A unit may cost so many times as much in the larger run, for the line to count as straight."""
STRANGERS = ("flowfn.cli", "flowfn.ui", "dask", "psycopg", "numpy", "pandas", "pydantic")
"""What `import flowfn` leaves alone."""
ONE = Sizes(1, 1, 1)
MEDIA = (("memory", in_memory), ("SQLite", on_sqlite))


def all_works() -> Iterator[Work]:
    yield Work(
        "invoke without tasks, memory",
        Sizes(50, 500, 1_000),
        in_memory(FLOWFN, flows.no_task, use=each),
        in_memory(LANGGRAPH, flows.no_task, use=each),
        bare.in_turn(),
        faster=40,
    )
    yield from _one_after_another()
    yield from _fan_outs()
    yield from _sub_calls()
    yield from _long_runs()
    yield from _replays()
    yield from _questions()
    yield from _parked_threads()
    yield from _payloads()
    yield from _cache_hits()
    yield from _graphs()
    yield from _appends()
    yield from _imports()


def _one_after_another() -> Iterator[Work]:
    for sizes in (Sizes(100, 1_000, 1_000), Sizes(500, 5_000, 5_000)):
        yield Work(
            "task call in turn, {n}, memory",
            sizes,
            in_memory(FLOWFN, flows.in_turn),
            in_memory(LANGGRAPH, flows.in_turn),
            bare.in_turn(),
            faster=60,
        )
    yield Work(
        "task call in turn, {n}, SQLite",
        Sizes(200, 1_000, 2_000),
        on_sqlite(FLOWFN, flows.in_turn),
        on_sqlite(LANGGRAPH, flows.in_turn),
        bare.commits(),
        faster=20,
        of_bare=2.5,
    )
    yield _on_disk(
        "task call in turn, a super-step each, {n}, bytes on disk",
        Sizes(500, 2_000, 5_000),
        flows.in_turn,
        bare=bare.commit_bytes(),
        at_most=300,
    )
    yield _on_disk("fan-out of {n}, one super-step, bytes on disk", Sizes(500, 2_000, 5_000), flows.fan_out)
    yield _on_disk("invoke without tasks, {n}, bytes on disk", Sizes(100, 1_000, 1_000), flows.no_task, each)
    yield Work(
        "task call in turn, {n}, SQLite, awaited",
        Sizes(200, 1_000, 2_000),
        awaited_on_sqlite(FLOWFN, flows.in_turn_awaited),
        awaited_on_sqlite(LANGGRAPH, flows.in_turn_awaited),
        bare.commits_awaited(),
        faster=8,
    )


def _on_disk(
    name: str,
    sizes: Sizes,
    flow: flows.MakeFlow,
    use: Use = once,
    bare: Entrant | None = None,
    at_most: float | None = None,
) -> Work:
    """The bytes by which a unit makes the file grow."""
    return Work(
        name,
        sizes,
        bytes_on_sqlite(FLOWFN, flow, use=use),
        bytes_on_sqlite(LANGGRAPH, flow, use=use),
        bare,
        at_most=at_most,
        measure=reported,
        unit="B",
        once=True,
    )


def _fan_outs() -> Iterator[Work]:
    large, smaller = Sizes(1_000, 10_000, 10_000), Sizes(100, 1_000, 1_000)
    for kind, run, flow, limit in (
        ("sync", in_memory, flows.fan_out, bare.fan_out()),
        ("async", awaited_in_memory, flows.fan_out_awaited, bare.fan_out_awaited()),
    ):
        for sizes in (Sizes(20, 100, 100), smaller):
            yield Work(f"fan-out of {{n}}, {kind}, memory", sizes, run(FLOWFN, flow), run(LANGGRAPH, flow), limit)
        yield Work(
            f"fan-out of {{n}}, {kind}, memory",
            large,
            run(FLOWFN, flow),
            run(LANGGRAPH, flow, Sizes(300, 3_000, 10_000)),
            limit,
            faster=80,
        )
        yield Work(
            f"fan-out of {{n}}, {kind}; bare: flowfn's at a tenth",
            large,
            run(FLOWFN, flow),
            bare=run(FLOWFN, flow, smaller),
            of_bare=STRAIGHT,
        )


def _sub_calls() -> Iterator[Work]:
    sizes = Sizes(200, 5_000, 5_000)
    # LangGraph hangs where the tasks are sync: those that wait hold all of its threads.
    beside = awaited_in_memory(LANGGRAPH, flows.fan_out_of_callers_awaited, Sizes(200, 1_000, 5_000))
    for kind, run, callers, flow, other in (
        ("sync", in_memory, flows.fan_out_of_callers, flows.fan_out, None),
        ("async", awaited_in_memory, flows.fan_out_of_callers_awaited, flows.fan_out_awaited, beside),
    ):
        yield Work(
            f"{{n}} that call one each, {kind}; bare: without",
            sizes,
            run(FLOWFN, callers),
            other,
            run(FLOWFN, flow),
            of_bare=3,
        )
        yield Work(
            f"{{n}} that call one each, {kind}; bare: at a fifth",
            sizes,
            run(FLOWFN, callers),
            bare=run(FLOWFN, callers, Sizes(100, 1_000, 1_000)),
            of_bare=STRAIGHT,
        )


def _long_runs() -> Iterator[Work]:
    for medium, on in MEDIA:
        run = LongRun(FLOWFN, on)
        yield Work(
            f"last 1 000 of {{n}} calls, {medium}; bare: the first",
            Sizes(3_000, 100_000, 100_000),
            run.last(),
            LongRun(LANGGRAPH, on).last(Sizes(1_000, 3_000, 10_000)),
            run.first(),
            of_bare=STRAIGHT,
            measure=reported,
        )


def _replays() -> Iterator[Work]:
    for sizes, faster in (
        (Sizes(10, 10, 10), None),
        (Sizes(50, 100, 100), None),
        (Sizes(200, 1_000, 1_000), 40),
        (Sizes(500, 5_000, 5_000), 40),
    ):
        yield Work(
            "replay of {n} finished calls, memory",
            sizes,
            replay(FLOWFN),
            replay(LANGGRAPH),
            bare.replay(),
            faster=faster,
        )
    yield Work(
        "replay of {n}; bare: flowfn's at a fifth",
        Sizes(500, 5_000, 5_000),
        replay(FLOWFN),
        bare=replay(FLOWFN, Sizes(100, 1_000, 1_000)),
        of_bare=STRAIGHT,
    )


def _questions() -> Iterator[Work]:
    sizes = Sizes(20, 200, 200)
    for medium, on in MEDIA:
        yield Work(
            f"question with a task, {{n}} in turn, {medium}",
            sizes,
            on(FLOWFN, flows.asks, use=asked),
            on(LANGGRAPH, flows.asks, use=asked),
            faster=30,
        )
    yield _on_disk("question with a task, {n} in turn, bytes on disk", Sizes(100, 1_000, 1_000), flows.asks, asked)


def _parked_threads() -> Iterator[Work]:
    sizes, fewer = Sizes(50, 10_000, 10_000), Sizes(50, 1_000, 10_000)
    yield Work(
        "start of a thread that waits, {n}, SQLite",
        sizes,
        on_sqlite(FLOWFN, flows.asks, use=each),
        on_sqlite(LANGGRAPH, flows.asks, fewer, each),
        faster=10,
    )
    yield Work(
        "answer to a thread that waits, {n}, SQLite",
        sizes,
        answers(FLOWFN),
        answers(LANGGRAPH, fewer),
        faster=10,
    )
    yield Work(
        "list of {n} open questions, SQLite",
        sizes,
        questions(FLOWFN),
        questions(LANGGRAPH),
        at_most=20,
        measure=cpu_of_all,
        unit="ms",
    )
    yield _on_disk("thread that waits, {n}, bytes on disk", Sizes(50, 1_000, 1_000), flows.asks, each)


def _payloads() -> Iterator[Work]:
    packed, pickled = (ormsgpack.packb, ormsgpack.unpackb), (pickle.dumps, pickle.loads)
    for name, value, sizes, limit in (
        ("1 MB of bytes", values.megabyte(), Sizes(3, 20, 50), packed),
        ("numpy array of 8 MB", values.array(), Sizes(1, 5, 10), pickled),
        ("list of 100 000 dicts", values.rows(), ONE, packed),
        ("list of 1 000 dataclasses", values.orders(), Sizes(1, 5, 10), pickled),
    ):
        flow = flows.returns(value)
        for medium, on in MEDIA:
            yield Work(
                f"payload: {name}, {medium}",
                sizes,
                on(FLOWFN, flow),
                on(LANGGRAPH, flow),
                bare.payload(value, *limit),
                faster=1,
            )
        yield _on_disk(f"payload: {name}, bytes on disk", sizes, flow)


def _cache_hits() -> Iterator[Work]:
    for medium, (ours, theirs), bare_hit, faster in (
        ("memory", caches.MEMORY, caches.of_functools(), None),
        ("disk", caches.DISK, caches.of_diskcache(), 15),
    ):
        yield Work(
            f"call answered by the cache, {medium}",
            Sizes(100, 500, 1_000),
            caches.of_flowfn(ours),
            caches.of_langgraph(theirs),
            bare_hit,
            faster=faster,
        )


def _graphs() -> Iterator[Work]:
    few, many = Sizes(50, 1_000, 1_000), Sizes(250, 5_000, 5_000)
    for medium, on in MEDIA:
        yield Work(
            f"super-step of a loop of two nodes, {{n}}, {medium}",
            few,
            on(FLOWFN, graphs.loop),
            on(LANGGRAPH, graphs.loop),
            faster=10,
        )
    yield _on_disk("super-step of a loop of two nodes, {n}, bytes on disk", few, graphs.loop)
    for medium, on in MEDIA:
        yield Work(
            f"loop of {{n}} super-steps, {medium}; bare: at a fifth",
            many,
            on(FLOWFN, graphs.loop),
            bare=on(FLOWFN, graphs.loop, few),
            of_bare=STRAIGHT,
        )
    for medium, on in MEDIA:
        yield Work(f"{{n}} Sends, {medium}", many, on(FLOWFN, graphs.sends), on(LANGGRAPH, graphs.sends))
        yield Work(
            f"{{n}} Sends, {medium}; bare: flowfn's at a fifth",
            many,
            on(FLOWFN, graphs.sends),
            bare=on(FLOWFN, graphs.sends, few),
            of_bare=STRAIGHT,
        )
    yield _on_disk("{n} Sends, bytes on disk", many, graphs.sends)


def _appends() -> Iterator[Work]:
    sizes = Sizes(200, 100_000, 100_000)
    for medium, _ in MEDIA:
        yield Work(
            f"append to a list of {{n}}, {medium}; bare: to an empty one",
            sizes,
            append_cpu(FLOWFN, medium),
            append_cpu(LANGGRAPH, medium),
            append_cpu(FLOWFN, medium, is_filled=False),
            of_bare=5,
            measure=reported,
        )
    yield Work(
        "append to a list of {n}, bytes; bare: to an empty one",
        sizes,
        append_bytes(FLOWFN),
        append_bytes(LANGGRAPH),
        append_bytes(FLOWFN, is_filled=False),
        of_bare=STRAIGHT,
        measure=reported,
        unit="B",
        once=True,
    )
    yield _on_disk("list that grows to {n}, an item a super-step, bytes", Sizes(50, 1_000, 1_000), graphs.grows)


def _imports() -> Iterator[Work]:
    yield Work(
        "import, whole process; bare: python -c pass",
        ONE,
        python("import flowfn"),
        python("import langgraph.func"),
        python("pass"),
        faster=6,
    )
    yield Work(
        "import, modules loaded; bare: python -c pass",
        ONE,
        _counts("flowfn"),
        _counts("langgraph.func"),
        _counts("sys"),
        measure=reported,
        unit="",
        once=True,
    )
    yield Work(
        "import, of cli ui dask psycopg numpy pandas pydantic",
        ONE,
        python(f"import flowfn, sys; print(sum(name in sys.modules for name in {STRANGERS}))"),
        at_most=0,
        measure=reported,
        unit="",
        once=True,
    )


def _counts(module: str) -> Entrant:
    return python(f"import sys, {module}; print(len(sys.modules))")
