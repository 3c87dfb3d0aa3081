"""Counts primes on all cores, and goes on where it was when it is killed.

    $ python examples/many_primes.py
    below 20000: 2262 primes
    below 40000: 4203 primes
    below 60000: 6057 primes
    below 80000: 7837 primes

The four tasks run in processes of their own, one for each core. What they give is stored here as it comes, so a script
that is killed after the second one counts the last two alone when it is run again.
"""

from flowfn import entrypoint, task


@task
def primes_between(low: int, high: int) -> int:
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(low, 2), high))


@entrypoint(executor="processes")
def count_primes(step: int, parts: int) -> list[int]:
    counts = [primes_between(i * step, (i + 1) * step) for i in range(parts)]
    total, totals = 0, []
    for count in counts:
        total += count.result()
        totals.append(total)
    return totals


if __name__ == "__main__":
    for i, total in enumerate(count_primes.run(20_000, 4)):
        print(f"below {(i + 1) * 20_000}: {total} primes")
