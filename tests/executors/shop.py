"""A module that both sides can import: tasks, classes and decorators of the tests of this folder."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass

from flowfn import task


@dataclass
class Order:
    number: int

    class Line:
        pass


class Odd(Exception):
    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"{number} is odd")


def noted(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return [fn.__name__, fn(*args, **kwargs)]

    return wrapper


@task
def double(x: int) -> int:
    return 2 * x


@task
@noted
def twice_decorated(x: int) -> int:
    return 2 * x


class Till:
    def __init__(self, balance: int) -> None:
        self.balance = balance

    @task
    def add(self, amount: int) -> int:
        return self.balance + amount

    @task
    @staticmethod
    def tax(amount: int) -> int:
        return amount // 5

    @task
    @classmethod
    def named(cls) -> str:
        return cls.__name__

    def __call__(self, amount: int) -> int:
        return self.balance - amount


@task
async def doubled_later(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


def fails(number: int) -> None:
    try:
        int("x")
    except ValueError as error:
        raise Odd(number) from error
