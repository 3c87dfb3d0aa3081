"""A Ctrl-C at a chosen moment: in the saver, around an effect of the loop, or in the code of tasks and flows."""

import threading
from contextlib import contextmanager

from crashing import Forwarding, Witness, labels_in

from flowfn.pregel import drivers


class Moments:
    """Counts moments of the main thread, where a Ctrl-C arrives, and interrupts at one of them.

    Args:
        at: number of the moment, from 1; 0 for never.
        error: what interrupts.

    Attributes:
        passed: how many there were.
        name: of the moment that was interrupted.
    """

    def __init__(self, at=0, error=KeyboardInterrupt):
        self.at, self.error = at, error
        self.passed, self.name = 0, None

    def __flow_key__(self):
        return "moments"

    def come(self, name):
        if threading.current_thread() is threading.main_thread():
            self.passed += 1
            if self.passed == self.at:
                self.name = name
                raise self.error


class InterruptedSaver(Forwarding):
    """Interrupted before or after whatever the runtime asks of it; `stored` are the labels of calls it has stored."""

    def __init__(self, inner, moments):
        super().__init__(inner)
        self.moments, self.stored, self.is_dead = moments, [], False

    def save(self, saves):
        self.moments.come("before save")
        self.inner.save(saves)
        self.stored += labels_in(saves, self.serde)
        self.moments.come("after save")

    def save_now(self, saves):
        self.moments.come("before save_now")
        done = self.inner.save_now(saves)
        if done:
            self.stored += labels_in(saves, self.serde)
        self.moments.come("after save_now")
        return done

    async def asave(self, saves):
        self.moments.come("before asave")
        await self.inner.asave(saves)
        self.stored += labels_in(saves, self.serde)
        self.moments.come("after asave")


def _interrupted(name):
    def method(self, *args, **kwargs):
        self.moments.come(f"before {name}")
        value = getattr(self.inner, name)(*args, **kwargs)
        self.moments.come(f"after {name}")
        return value

    async def amethod(self, *args, **kwargs):
        self.moments.come(f"before {name}")
        value = await getattr(self.inner, name)(*args, **kwargs)
        self.moments.come(f"after {name}")
        return value

    return amethod if name.startswith("a") and name != "answer" else method


for _name in ("load", "question", "questions", "answer", "aload", "aquestion", "aquestions", "aanswer"):
    setattr(InterruptedSaver, _name, _interrupted(_name))


class InterruptedWitness(Witness):
    """Interrupted wherever code of a task or a flow is at work."""

    def __init__(self, saver, moments):
        super().__init__(saver)
        self.moments = moments

    def run(self, task, argument):
        value = super().run(task, argument)
        self.moments.come(f"{task} {argument} begins")
        return value

    def work(self, value):
        self.moments.come(f"{value[0]} {value[1]} works")
        return super().work(value)

    def see(self, value, by):
        super().see(value, by)
        self.moments.come(f"{by[0]} saw {value[0]} {value[1]}")
        return value

    def hear(self, question, answer, by):
        self.moments.come(f"{by[0]} heard")
        return super().hear(question, answer, by)


@contextmanager
def interrupted_effects(moments):
    """Interrupt the drivers before or after whatever a loop asks them for."""
    perform, aperform = drivers.perform, drivers.aperform

    def interrupted(run, effect, *more):
        moments.come(f"before {type(effect).__name__}")
        value = perform(run, effect, *more)
        moments.come(f"after {type(effect).__name__}")
        return value

    async def ainterrupted(run, effect, *more):
        moments.come(f"before {type(effect).__name__}")
        value = await aperform(run, effect, *more)
        moments.come(f"after {type(effect).__name__}")
        return value

    drivers.perform, drivers.aperform = interrupted, ainterrupted
    try:
        yield
    finally:
        drivers.perform, drivers.aperform = perform, aperform
