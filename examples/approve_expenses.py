"""A batch of expenses: small ones are paid at once, each large one waits until a person has approved it.

The script asks and ends; while it waits, nothing runs. An answer goes on with the branch that asked for it, and what
was paid is not paid again.

    $ python examples/approve_expenses.py
    paid: Ada, 18.50 for lunch (transfer …)
    waits: Ben, 640.00 for chairs
    waits: Cleo, 1200.00 for a laptop
    Answer with: python examples/approve_expenses.py NAME yes|no|AMOUNT
    $ python examples/approve_expenses.py Ben 500
    paid: Ben, 500.00 for chairs (transfer …)
    waits: Cleo, 1200.00 for a laptop
    Answer with: python examples/approve_expenses.py NAME yes|no|AMOUNT
    $ python examples/approve_expenses.py Cleo no
    Ada, 18.50 for lunch: paid
    Ben, 500.00 for chairs: paid
    Cleo, 1200.00 for a laptop: refused

Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB says.
"""

import getpass
import sys
from dataclasses import dataclass, replace

from flowfn import FlowWaiting, approve, entrypoint, get_runtime, task


@dataclass(frozen=True)
class Expense:
    who: str
    amount: float
    what: str

    def __str__(self) -> str:
        return f"{self.who}, {self.amount:.2f} for {self.what}"


NOVEMBER = [Expense("Ada", 18.5, "lunch"), Expense("Ben", 640.0, "chairs"), Expense("Cleo", 1200.0, "a laptop")]


@task
def pay(expense: Expense) -> None:
    # A bank would get the task's id as idempotency key: it is equal over retries and restarts.
    print(f"paid: {expense} (transfer {get_runtime().task_id})")


@task
def settle(expense: Expense) -> str:
    if expense.amount > 100:
        verdict = approve(expense, title=f"May {expense.who} have {expense.amount:.2f} for {expense.what}?")
        if not verdict.approved:
            return f"{expense}: refused"
        expense = verdict.payload
    pay(expense).result()
    return f"{expense}: paid"


@entrypoint
def settle_all(expenses: list[Expense]) -> list[str]:
    return settle.map(expenses).result()


def main(name: str = "", word: str = "") -> None:
    month = settle_all.thread("2026-11", ask=False)
    for question in month.questions():
        expense = question.value["payload"]
        if expense.who == name:
            edited = expense if word in ("yes", "no") else replace(expense, amount=float(word))
            month.answer({"approved": word != "no", "payload": edited}, question.id, by=getpass.getuser())
    try:
        print("\n".join(month.run(NOVEMBER)))
    except FlowWaiting as waiting:
        for line in sorted(str(question.value["payload"]) for question in waiting.questions):
            print(f"waits: {line}")
        print("Answer with: python examples/approve_expenses.py NAME yes|no|AMOUNT")


if __name__ == "__main__":
    main(*sys.argv[1:])
