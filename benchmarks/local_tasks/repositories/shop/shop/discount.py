"""Large orders cost less."""

STEPS = ((20000, 10), (10000, 5))


def discount_percent(amount):
    """The discount in percent for an order of `amount` cents: 5 from 100.00 on, 10 from 200.00 on."""
    for threshold, percent in STEPS:
        if amount >= threshold:
            return percent
    return 0


def discount(amount):
    return amount * discount_percent(amount) // 100
