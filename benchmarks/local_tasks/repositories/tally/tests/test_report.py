from tally.ledger import Ledger
from tally.report import average, settle


def trip():
    ledger = Ledger()
    ledger.add("anna", 3000, "petrol")
    ledger.add("ben", 1000, "ice cream")
    ledger.add("carl", 2000, "pizza")
    return ledger


def test_average():
    assert average(trip()) == 2000


def test_average_of_nothing():
    assert average(Ledger()) == 0


def test_settle():
    assert settle(trip()) == ["anna gets 10.00 EUR", "ben owes 10.00 EUR"]
