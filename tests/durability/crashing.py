"""What the tests of this folder share: a saver that dies, tasks that count, one body for functions and coroutines."""

import asyncio
import threading

import flowfn
from flowfn.checkpoint import Saver
from flowfn.checkpoint.base import SaveCall

CONFIG = {"configurable": {"thread_id": "t"}}


class Crash(BaseException):
    """The process dies here."""


class DoomedSaver(Saver):
    """Hands everything to another saver, and dies at one of the writes; a dead one does nothing any more.

    Args:
        inner: what survives.
        at: number of the write, from 1; 0 for never.
        after: whether that write is still done.
        error: what is raised.
    """

    def __init__(self, inner, at=0, after=False, error=Crash):
        self.inner, self.serde = inner, inner.serde
        self.at, self.after, self.error = at, after, error
        self.writes, self.is_dead, self.stored = 0, False, []
        self._lock = threading.Lock()

    def _begin_write(self):
        with self._lock:
            if self.is_dead:
                raise self.error("dead")
            self.writes += 1
            dies = self.is_dead = self.writes == self.at
        if dies and not self.after:
            raise self.error("died before the write was done")
        return dies

    def _end_write(self, saves, dies):
        self.stored += [label_of(save.row) for save in saves if isinstance(save, SaveCall)]
        if dies:
            raise self.error("died after the write was done")

    def save(self, saves):
        dies = self._begin_write()
        self.inner.save(saves)
        self._end_write(saves, dies)

    def save_now(self, saves):
        dies = self._begin_write()
        done = self.inner.save_now(saves)
        assert done, "nobody else writes in these tests"
        self._end_write(saves, dies)
        return True

    async def asave(self, saves):
        dies = self._begin_write()
        await self.inner.asave(saves)
        self._end_write(saves, dies)

    def answer(self, *args, **kwargs):
        dies = self._begin_write()
        self.inner.answer(*args, **kwargs)
        self._end_write((), dies)

    async def aanswer(self, *args, **kwargs):
        dies = self._begin_write()
        await self.inner.aanswer(*args, **kwargs)
        self._end_write((), dies)


def _forwarded(name):
    def method(self, *args, **kwargs):
        return getattr(self.inner, name)(*args, **kwargs)

    return method


for _name in Saver.__abstractmethods__:
    if _name not in DoomedSaver.__dict__:
        setattr(DoomedSaver, _name, _forwarded(_name))
DoomedSaver.__abstractmethods__ = frozenset()


def label_of(row):
    """(task, its one argument as text) of a stored call."""
    return row.name.rpartition(":")[2].rpartition(".")[2], row.arguments


class Witness:
    """Sees what runs and what is seen, as long as the process lives.

    Attributes:
        ran: labels of attempts begun before the crash.
        saw: labels of results that reached their caller before the crash.
    """

    def __init__(self, saver):
        self.saver, self.ran, self.saw = saver, [], []
        self.lock = threading.Lock()  # keeps this object out of the identity of tasks that capture it

    def run(self, task, argument):
        if not self.saver.is_dead:
            self.ran.append((task, repr(argument)))

    def see(self, task, argument):
        if not self.saver.is_dead:
            self.saw.append((task, repr(argument)))


def driven(steps):
    """Take a generator of futures to its end, blocking."""
    try:
        wanted = steps.send(None)
        while True:
            try:
                value = wanted.result()
            except BaseException as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(value)
    except StopIteration as end:
        return end.value


async def adriven(steps):
    """The awaited twin of `driven`."""
    try:
        wanted = steps.send(None)
        while True:
            try:
                value = await wanted
            except BaseException as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(value)
    except StopIteration as end:
        return end.value


def written(body, how):
    """A generator that yields futures, as a plain function (`sync`) or as a coroutine function (`async`)."""
    if how == "sync":

        def fn(x):
            return driven(body(x))
    else:

        async def fn(x):
            return await adriven(body(x))

    fn.__name__, fn.__qualname__, fn.__module__ = body.__name__, body.__qualname__, body.__module__
    return fn


def flow_of(body, saver, how):
    return flowfn.entrypoint(checkpointer=saver)(written(body, how))


def task_of(body, how):
    return flowfn.task(written(body, how))


def call(flow, how, value, config=CONFIG):
    """`invoke` or `ainvoke`."""
    if how == "sync":
        return flow.invoke(value, config)
    return asyncio.run(flow.ainvoke(value, config))


def finished(flow, how, inputs, answer="yes", saver=None):
    """Take the thread through a run for each input, from wherever it stands; every question gets the same answer."""
    result = None
    for _ in range(30):
        runs = saver.runs("t")
        if not runs:
            result = call(flow, how, inputs[0])
        elif runs[0].status != "finished":
            result = call(flow, how, None)
        elif len(runs) < len(inputs):
            result = call(flow, how, inputs[len(runs)])
        else:
            return call(flow, how, None) if result is None else result
        while isinstance(result, dict) and "__interrupt__" in result:
            answers = {question.id: answer for question in result["__interrupt__"]}
            result = call(flow, how, flowfn.Command(resume=answers))
    raise AssertionError("the thread never comes to its end")
