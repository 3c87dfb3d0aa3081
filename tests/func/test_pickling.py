"""Decorated functions are shared and sent by their names, as functions are."""

import copy
import pickle

import pytest

from flowfn import entrypoint, task


@task
def add(x, y=1):
    return x + y


@entrypoint
def total(x):
    return add(x).result()


class Shop:
    @task
    def price(self, sku):
        return len(sku)


@pytest.mark.parametrize("decorated", [add, total])
def test_a_decorated_function_is_pickled_by_its_name(decorated):
    assert pickle.loads(pickle.dumps(decorated)) is decorated


@pytest.mark.parametrize("decorated", [add, total])
def test_a_copy_of_a_decorated_function_is_itself(decorated):
    assert copy.deepcopy([decorated])[0] is decorated
    assert copy.copy(decorated) is decorated


def test_a_task_of_an_object_is_pickled_with_the_object():
    shop = Shop()

    back = pickle.loads(pickle.dumps(shop.price))

    assert back.func("tea") == 3


def test_a_flow_that_its_module_does_not_know_says_so():
    @entrypoint
    def local(x):
        return x

    with pytest.raises(TypeError, match="local"):
        pickle.dumps(local)


def test_decorating_leaves_the_function_as_it_was():
    def plain(x):
        """Doc."""
        return x

    before = dict(vars(plain)), plain.__name__, plain.__qualname__, plain.__doc__

    decorated, flow = task(plain), entrypoint(plain)

    assert (dict(vars(plain)), plain.__name__, plain.__qualname__, plain.__doc__) == before
    assert decorated.func is plain
    assert flow.func is plain
    assert decorated.__name__ == flow.__name__ == "plain"
