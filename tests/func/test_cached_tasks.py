"""What is, and is not, found in a cache."""

import threading
from dataclasses import dataclass

from flowfn import CachePolicy, entrypoint, task
from flowfn.cache import InMemoryCache

RAN = []


@dataclass(frozen=True)
class Scale:
    factor: int

    @task(cache_policy=CachePolicy())
    def of(self, x):
        RAN.append((self.factor, x))
        return x * self.factor


class Account:
    def __init__(self, name):
        self.name = name

    @task(cache_policy=CachePolicy())
    def balance(self, x):
        return self.name


def test_methods_of_different_objects_have_different_entries():
    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [Scale(1).of(x).result(), Scale(2).of(x).result(), Scale(2).of(x).result()]

    RAN.clear()
    assert flow.invoke(10) == [10, 20, 20]
    assert RAN == [(1, 10), (2, 10)]


def test_an_object_without_an_identity_is_never_answered_for():
    cache = InMemoryCache()

    def asked(account):
        @entrypoint(cache=cache)
        def flow(x):
            return account.balance(x).result()

        return flow.invoke(1)

    assert [asked(Account("a")), asked(Account("b"))] == ["a", "b"]


def test_arguments_that_are_left_out_are_not_taken_for_each_other():
    class Connection:
        def __init__(self, place):
            self.place, self.lock = place, threading.Lock()

    @task(cache_policy=CachePolicy(), key=lambda connection, x: (connection.place, x))
    def ask(connection, x):
        return connection.place

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [ask(Connection("eu"), x).result(), ask(Connection("us"), x).result()]

    assert flow.invoke(1) == ["eu", "us"]


def test_a_future_as_an_argument_does_not_stand_for_another_threads_value():
    today = [1]

    @task
    def now():
        return today[0]

    @task(cache_policy=CachePolicy())
    def double(x):
        return 2 * x

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return double(now()).result()

    first = flow.invoke(0)
    today[0] = 2

    assert [first, flow.invoke(0)] == [2, 4]


def test_a_result_that_no_cache_can_keep_is_a_result_all_the_same():
    @task(cache_policy=CachePolicy())
    def lock():
        return threading.Lock()

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [type(lock().result()).__name__ for _ in range(3)]

    assert flow.invoke(0, {"max_concurrency": 1}) == ["lock"] * 3
