"""What the numbers mean for the people."""

from tally.money import show


def average(ledger):
    """What each payer would have paid if all had paid the same, in cents."""
    paid = ledger.paid_by()
    if not paid:
        return 0
    return sum(paid.values()) // len(paid)


def largest(ledger):
    """The most expensive entry, or None when there are no expenses."""
    return max(ledger.expenses, key=lambda expense: expense.cents, default=None)


def settle(ledger):
    """Lines such as "ben owes 3.50 EUR"."""
    share = average(ledger)
    lines = []
    for payer, paid in sorted(ledger.paid_by().items()):
        if paid < share:
            lines.append(f"{payer} owes {show(share - paid)}")
        elif paid > share:
            lines.append(f"{payer} gets {show(paid - share)}")
    return lines
