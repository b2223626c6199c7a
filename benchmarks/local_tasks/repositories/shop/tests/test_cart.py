from shop.cart import Cart, Item, calc


def test_calc():
    cart = Cart()
    cart.add(Item("book", 1500))
    cart.add(Item("pen", 200, quantity=3))
    assert calc(cart) == 2100


def test_remove():
    cart = Cart()
    cart.add(Item("book", 1500))
    cart.add(Item("pen", 200))
    cart.remove("book")
    assert calc(cart) == 200
