"""Amounts in cents, and how they are shown."""

CURRENCY = "EUR"


def parse(text):
    """Turn "12.50" or "12" into cents. Raises ValueError for anything else."""
    whole, _, cents = text.strip().partition(".")
    if not whole.isdigit() or (cents and not cents.isdigit()) or len(cents) > 2:
        raise ValueError(f"not an amount: {text!r}")
    return int(whole) * 100 + int(cents.ljust(2, "0") or 0)


def show(cents):
    return f"{cents // 100}.{cents % 100:02d} {CURRENCY}"
