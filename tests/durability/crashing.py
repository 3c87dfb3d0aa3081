"""What the tests of this folder share: savers that fail, what runs and is seen, one body for both kinds of function."""

import asyncio
import threading

import flowfn
from flowfn.checkpoint import Saver
from flowfn.checkpoint.base import SaveCall, SaveWrites

CONFIG = {"configurable": {"thread_id": "t"}}


class Crash(BaseException):
    """The process dies here."""


class Forwarding(Saver):
    """Hands everything to another saver; the base of those that disturb it."""

    def __init__(self, inner):
        self.inner, self.serde, self.is_instant = inner, inner.serde, inner.is_instant


def _forwarded(name):
    def method(self, *args, **kwargs):
        return getattr(self.inner, name)(*args, **kwargs)

    return method


for _name in Saver.__abstractmethods__:
    setattr(Forwarding, _name, _forwarded(_name))
Forwarding.__abstractmethods__ = frozenset()


class FailingSaver(Forwarding):
    """Fails at one of the saves, and works again after that.

    Args:
        inner: what stores.
        at: number of the save, from 1; 0 for never.
        after: whether that save is done all the same.
        error: what is raised.

    Attributes:
        saves: how many there were.
        failed: what the one that failed was to store; None before.
        stored: labels of the calls stored.
        when_failed: called at that moment.
    """

    is_dead = False

    def __init__(self, inner, at=0, after=False, error=None):
        super().__init__(inner)
        self.is_instant = False
        self.at, self.after, self.error = at, after, error
        self.saves, self.failed, self.stored, self.when_failed = 0, None, [], lambda: None
        self._lock = threading.Lock()

    def _begin(self, saves):
        with self._lock:
            self.saves += 1
            if self.saves != self.at:
                return False
        if self.after:
            return True
        self._fail(saves)

    def _end(self, saves, fails):
        self.stored += labels_in(saves, self.serde)
        if fails:
            self._fail(saves)

    def _fail(self, saves):
        self.failed = list(saves)
        self.when_failed()
        raise self.error

    def save(self, saves):
        fails = self._begin(saves)
        self.inner.save(saves)
        self._end(saves, fails)

    def save_now(self, saves):
        fails = self._begin(saves)
        self.inner.save(saves)  # a worker of an earlier run may still write
        self._end(saves, fails)
        return True

    async def asave(self, saves):
        fails = self._begin(saves)
        await self.inner.asave(saves)
        self._end(saves, fails)


class DoomedSaver(Forwarding):
    """Dies at one of the writes; a dead one does nothing any more.

    Args:
        inner: what survives.
        at: number of the write, from 1; 0 for never.
        after: whether that write is still done.
        error: what is raised.
    """

    def __init__(self, inner, at=0, after=False, error=Crash):
        super().__init__(inner)
        self.is_instant = False
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
        self.stored += labels_in(saves, self.serde)
        if dies:
            raise self.error("died after the write was done")

    def save(self, saves):
        dies = self._begin_write()
        self.inner.save(saves)
        self._end_write(saves, dies)

    def save_now(self, saves):
        dies = self._begin_write()
        self.inner.save(saves)  # a worker of an earlier run may still write
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


def labels_in(saves, serde):
    """Labels of the results that these saves store, of tasks and of nodes: (name, its one argument as text)."""
    labels = []
    for save in saves:
        if isinstance(save, SaveCall):
            labels.append((save.row.name.rpartition(":")[2].rpartition(".")[2], save.row.arguments))
        if isinstance(save, SaveWrites):
            channel, value, *_ = serde.loads(save.writes[0][1])  # the first of its writes, all in one
            if channel == "__error__":
                continue
            name, argument = value[-1] if isinstance(value[-1], list) else value
            labels.append((name, repr(argument)))
    return labels


class Witness:
    """Sees what runs and what is seen, as long as the process lives.

    Attributes:
        ran: labels of bodies begun before the crash.
        saw: labels of results that reached their caller before the crash.
    """

    def __init__(self, saver):
        self.saver, self.ran, self.saw = saver, [], []

    def __flow_key__(self):
        return "witness"

    def run(self, task, argument):
        """The body of a task or flow begins; gives what it is to return, which says which call it was."""
        if not self.saver.is_dead:
            self.ran.append((task, repr(argument)))
        return [task, argument]

    def work(self, value):
        """What the body then does until it has that value; waited for as a future is."""
        return Working()

    def see(self, value, by):
        """A result has reached the body that is to return `by`; gives the result back."""
        if not self.saver.is_dead:
            self.saw.append((value[0], repr(value[1])))
        return value

    def hear(self, question, answer, by):
        """So has an answer."""
        assert answer == "yes"
        return [question, answer]


class Working:
    """Something that takes no time."""

    def result(self):
        pass

    def __await__(self):
        return asyncio.sleep(0).__await__()


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


class Calling:
    """A flow to be called inside another one; what a call gives is waited for as a future is."""

    def __init__(self, flow):
        self.flow = flow

    def __flow_key__(self):
        return self.flow.name

    def __call__(self, input):
        return _Called(self.flow, input)


class _Called:
    def __init__(self, flow, input):
        self.flow, self.input = flow, input

    def result(self):
        return self.flow.invoke(self.input)

    def __await__(self):
        return self.flow.ainvoke(self.input).__await__()


END = object()


class Next:
    """What comes next out of `as_completed` or `map`, waited for as a future is; `END` when nothing does."""

    def __init__(self, source):
        self.source, self.here, self.there = source, None, None

    def result(self):
        self.here = self.here or iter(self.source)
        return next(self.here, END)

    def __await__(self):
        self.there = self.there or aiter(self.source)
        return anext(self.there, END).__await__()


def call(flow, how, value, config=CONFIG):
    """`invoke` or `ainvoke`."""
    if how == "sync":
        return flow.invoke(value, config)
    return asyncio.run(flow.ainvoke(value, config))


def finished(flow, how, inputs, answer="yes", saver=None, thread="t"):
    """Take a thread through a run for each input, from wherever it stands; every question gets the same answer."""
    result, config = None, {"configurable": {"thread_id": thread}}
    for _ in range(30):
        runs = saver.runs(thread)
        if not runs:
            result = call(flow, how, inputs[0], config)
        elif runs[0].status != "finished":
            result = call(flow, how, None, config)
        elif len(runs) < len(inputs):
            result = call(flow, how, inputs[len(runs)], config)
        else:
            return call(flow, how, None, config) if result is None else result
        while isinstance(result, dict) and "__interrupt__" in result:
            answers = {question.id: answer for question in result["__interrupt__"]}
            result = call(flow, how, flowfn.Command(resume=answers), config)
    raise AssertionError("the thread never comes to its end")
