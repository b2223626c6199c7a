import pytest
from tally.money import parse, show


def test_parse():
    assert parse("12.50") == 1250
    assert parse("12.5") == 1250
    assert parse("7") == 700


@pytest.mark.parametrize("text", ["", "abc", "1.234", "-3"])
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="not an amount"):
        parse(text)


def test_show():
    assert show(1205) == "12.05 EUR"
