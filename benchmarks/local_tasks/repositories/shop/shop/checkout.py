from shop.cart import calc
from shop.discount import discount
from shop.shipping import shipping


def checkout(cart, country="DE"):
    """The parts of the bill in cents."""
    amount = calc(cart)
    reduction = discount(amount)
    parcel = shipping(amount - reduction, country)
    return {
        "items": amount,
        "discount": reduction,
        "shipping": parcel,
        "total": amount - reduction + parcel,
    }
