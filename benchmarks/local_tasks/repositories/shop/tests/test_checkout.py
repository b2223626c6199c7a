from shop.cart import Cart, Item
from shop.checkout import checkout
from shop.discount import discount_percent
from shop.shipping import shipping


def cart_of(price):
    cart = Cart()
    cart.add(Item("thing", price))
    return cart


def test_small_order():
    assert checkout(cart_of(1000)) == {"items": 1000, "discount": 0, "shipping": 490, "total": 1490}


def test_discount_starts_at_the_threshold():
    assert discount_percent(9999) == 0
    assert discount_percent(10000) == 5
    assert discount_percent(20000) == 10


def test_large_order():
    assert checkout(cart_of(20000)) == {"items": 20000, "discount": 2000, "shipping": 0, "total": 18000}


def test_shipping_abroad_is_never_free():
    assert shipping(50000, "CH") == 1490
    assert shipping(50000, "US") == 1990
