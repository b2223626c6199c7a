"""The list of expenses and the file it lives in."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Expense:
    payer: str
    cents: int
    what: str


class Ledger:
    def __init__(self, expenses=()):
        self.expenses = list(expenses)

    @classmethod
    def load(cls, path):
        path = Path(path)
        if not path.exists():
            return cls()
        return cls(Expense(**entry) for entry in json.loads(path.read_text()))

    def save(self, path):
        Path(path).write_text(json.dumps([asdict(expense) for expense in self.expenses], indent=2))

    def add(self, payer, cents, what=""):
        self.expenses.append(Expense(payer, cents, what))

    def total(self):
        return sum(expense.cents for expense in self.expenses)

    def paid_by(self):
        """Cents by payer."""
        paid = {}
        for expense in self.expenses:
            paid[expense.payer] = paid.get(expense.payer, 0) + expense.cents
        return paid
