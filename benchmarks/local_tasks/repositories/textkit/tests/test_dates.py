import pytest
from textkit.dates import days_in_month, is_leap


def test_leap_years():
    assert is_leap(2024)
    assert is_leap(2000)
    assert not is_leap(1900)
    assert not is_leap(2023)


def test_days():
    assert days_in_month(2023, 2) == 28
    assert days_in_month(2024, 2) == 29
    assert days_in_month(2024, 4) == 30


def test_no_such_month():
    with pytest.raises(ValueError, match="no such month"):
        days_in_month(2024, 13)
