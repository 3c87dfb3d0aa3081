"""How decorated functions look to a type checker; read by mypy and pyright, never run."""

from __future__ import annotations

from typing import assert_type

from flowfn import Flow, MapFuture, TaskFuture, Thread, entrypoint, task


@task
def double(x: int, *, times: int = 1) -> int:
    return x * 2 * times


@task
async def fetch(url: str) -> bytes:
    return url.encode()


@task(name="named", interchangeable=True)
def named(x: str) -> list[str]:
    return [x]


# What it gives depends on whether the function is async.
plain_function = double.func


class Shop:
    @task
    def price(self, sku: str) -> float:
        return float(len(sku))

    @task
    async def stock(self, sku: str) -> int:
        return len(sku)


@entrypoint
def plain(x: int) -> str:
    assert_type(double(1), TaskFuture[int])
    assert_type(double(1, times=2).result(), int)
    assert_type(fetch("u"), TaskFuture[bytes])
    assert_type(named("x").result(), list[str])
    assert_type(double.map([1, 2]), MapFuture[int])
    assert_type(double.map([1, 2]).result(), list[int])
    assert_type(double(double(1).later), TaskFuture[int])
    assert_type(double.with_options(key=lambda x, times=1: x)(3), TaskFuture[int])
    shop = Shop()
    assert_type(shop.price("a"), TaskFuture[float])
    assert_type(shop.stock("a"), TaskFuture[int])
    return str(x)


@entrypoint(name="kept")
async def waiting(x: int, y: str = "") -> int:
    assert_type(await fetch("u"), bytes)
    return x


@entrypoint()
def counting(day: str, *, previous: int | None = None) -> entrypoint.final[str, int]:
    return entrypoint.final(value=day, save=(previous or 0) + 1)


def use() -> None:
    assert_type(plain.run(1), str)
    assert_type(waiting.run(1, "a"), int)
    assert_type(counting.run("monday"), str)
    assert_type(plain.thread("t").run(1), str)


def wrong() -> None:
    double("x")  # type: ignore[arg-type]  # pyright: ignore
    double(1, 2)  # type: ignore[call-arg]  # pyright: ignore
    plain.run("x")  # type: ignore[arg-type]  # pyright: ignore
    Shop().price(1)  # type: ignore[arg-type]  # pyright: ignore


_: tuple[type, ...] = (Flow, Thread)
