from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    name: str
    price: int
    quantity: int = 1


class Cart:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)

    def remove(self, name):
        self.items = [item for item in self.items if item.name != name]


def calc(cart):
    """The sum of all items in cents, before discount and shipping."""
    return sum(item.price * item.quantity for item in cart.items)
