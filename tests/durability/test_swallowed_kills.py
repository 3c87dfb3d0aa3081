"""A `KeyboardInterrupt` out of a task or a flow leaves a run that goes on, whatever else was running."""

import pytest
from crashing import CONFIG, call, finished, flow_of, task_of

from flowfn.checkpoint.memory import InMemorySaver


class Switch:
    """Interrupts so many times."""

    def __init__(self, times=1):
        self.left = times

    def press(self):
        if self.left:
            self.left -= 1
            raise KeyboardInterrupt

    def __reduce__(self):
        raise TypeError("not to be stored")


@pytest.mark.parametrize("how", ["sync"])
def test_an_interrupt_in_a_task_ends_the_call_and_the_next_one_goes_on(how):
    # given
    ran, switch, saver = [], Switch(), InMemorySaver()

    def first(x):
        ran.append("first")
        return x
        yield

    def second(x):
        ran.append("second")
        switch.press()
        return x
        yield

    def flow(x):
        one = yield first_task(x)
        two = yield second_task(x)
        return one + two

    first_task, second_task = task_of(first, how), task_of(second, how)
    run = flow_of(flow, saver, how)

    # when
    with pytest.raises(KeyboardInterrupt):
        call(run, how, 1)

    # then
    assert finished(run, how, [1], saver=saver) == 2
    assert ran == ["first", "second", "second"]


@pytest.mark.parametrize("how", ["sync"])
def test_an_interrupt_in_the_flow_itself_ends_the_call_and_the_next_one_goes_on(how):
    # given
    ran, switch, saver = [], Switch(), InMemorySaver()

    def first(x):
        ran.append("first")
        return x
        yield

    def flow(x):
        one = yield first_task(x)
        switch.press()
        return one

    first_task = task_of(first, how)
    run = flow_of(flow, saver, how)

    # when
    with pytest.raises(KeyboardInterrupt):
        call(run, how, 1)

    # then
    assert run.get_state(CONFIG).next == ("flow",)
    assert call(run, how, None) == 1
    assert ran == ["first"]


def test_an_interrupted_fan_out_keeps_what_had_finished():
    # given
    ran, switch, saver = [], Switch(), InMemorySaver()

    def work(x):
        ran.append(x)
        if x == 3:
            switch.press()
        return x
        yield

    def flow(x):
        futures = [work_task(i) for i in range(5)]
        total = []
        for future in futures:
            value = yield future
            total.append(value)
        return total

    work_task = task_of(work, "sync")
    run = flow_of(flow, saver, "sync")

    # when
    with pytest.raises(KeyboardInterrupt):
        call(run, "sync", 1)
    ran_before = list(ran)

    # then
    assert call(run, "sync", None) == [0, 1, 2, 3, 4]
    again = ran[len(ran_before) :]
    assert 3 in again
    assert not {0, 1, 2} & set(again)
