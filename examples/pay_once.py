"""Pay an order once, although the process dies right after the bank has paid and before anybody has noted it.

The next run does not pay again: it looks into the bank's book. Orders from 100 on are paid by a bank that cannot be
asked, so a person is.

    $ python examples/pay_once.py 7 crash
    the bank pays 120.00 for order 7
    $ python examples/pay_once.py 7
    …its effect took place.
    order 7 is paid: receipt R-7
    $ python examples/pay_once.py 107 crash
    the bank pays 120.00 for order 107
    $ python examples/pay_once.py 107
    Was order 107 paid? Answer with: python examples/pay_once.py 107 RECEIPT|run
    $ python examples/pay_once.py 107 R-107
    order 107 is paid: receipt R-107

The bank's book is `bank.txt` in the current folder. Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB
says.
"""

import os
import sys
from pathlib import Path

from flowfn import DID_NOT_HAPPEN, FlowWaiting, Happened, entrypoint, get_runtime, task

BOOK = Path("bank.txt")


def look_up(order: int, amount: float) -> object:
    """What is known of a payment that was begun."""
    if order >= 100:
        return None
    receipt = f"R-{order}"
    return Happened(receipt) if BOOK.exists() and f"{receipt} " in BOOK.read_text() else DID_NOT_HAPPEN


@task(effect="external", reconcile=look_up)
def pay(order: int, amount: float) -> str:
    receipt = f"R-{order}"
    with BOOK.open("a") as book:
        # A bank would get the task's id as idempotency key, and pay once however often it is asked.
        book.write(f"{receipt} {amount:.2f} {get_runtime().task_id}\n")
    print(f"the bank pays {amount:.2f} for order {order}", flush=True)
    if sys.argv[2:] == ["crash"]:
        os._exit(1)
    return receipt


@entrypoint
def settle(order: int, amount: float) -> str:
    return f"order {order} is paid: receipt {pay(order, amount).result()}"


def main(order: int, answer: str = "") -> None:
    thread = settle.thread(f"order-{order}", ask=False)
    if answer not in ("", "crash") and thread.questions():
        thread.answer("run" if answer == "run" else {"result": answer})
    try:
        print(thread.run(order, 120.0))
    except FlowWaiting:
        print(f"Was order {order} paid? Answer with: python examples/pay_once.py {order} RECEIPT|run")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
