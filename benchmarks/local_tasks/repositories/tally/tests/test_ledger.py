from tally.ledger import Ledger


def test_save_and_load(tmp_path):
    ledger = Ledger()
    ledger.add("anna", 1250, "pizza")
    ledger.save(tmp_path / "expenses.json")
    assert Ledger.load(tmp_path / "expenses.json").total() == 1250


def test_paid_by():
    ledger = Ledger()
    ledger.add("anna", 100)
    ledger.add("ben", 50)
    ledger.add("anna", 25)
    assert ledger.paid_by() == {"anna": 125, "ben": 50}
