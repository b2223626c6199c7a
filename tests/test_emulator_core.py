"""The emulator's core: what all APIs share. The other tests lean on it."""

import json
from contextlib import nullcontext
from decimal import Decimal

import pytest
from emulator import ManualClock, Recorded, assert_extends
from emulator.bill import Bill
from emulator.cache import Entries
from emulator.faults import place_of, retry_after
from emulator.models import ALL


def _request(raw: str) -> Recorded:
    return Recorded("/v1/messages", {}, raw.encode(), json.loads(raw))


@pytest.mark.parametrize(
    ("later", "same"),
    [
        ('{"model":"m","messages":[{"text":"é"},{"b":2}],"max_tokens":7}', True),  # what differs stands behind
        ('{"model":"m","messages":[{"text":"é","cache_control":{"type":"ephemeral"}},{"b":2}]}', True),
        ('{"model":"m","messages":[{"text":"é","cache_control":{"type":"ephemeral","ttl":"1h"}},{"b":2}]}', True),
        ('{"model":"m","messages":[{"text":"\\u00e9"},{"b":2}],"max_tokens":5}', False),
        ('{"model":"m","messages":[{"text": "é"},{"b":2}],"max_tokens":5}', False),
        ('{"model":"m","x":1,"messages":[{"text":"é"},{"b":2}],"max_tokens":5}', False),
        ('{"model":"m","messages":[],"max_tokens":5}', False),
    ],
)
def test_the_comparison_of_requests_sees_every_byte_but_markers(later: str, same: bool) -> None:
    """A change of escaping or spacing loses the cache as any other does."""
    earlier = _request('{"model":"m","messages":[{"text":"é","cache_control":{"type":"ephemeral"}}],"max_tokens":5}')
    with nullcontext() if same else pytest.raises(AssertionError, match="leaves the earlier one at byte"):
        assert_extends(earlier, _request(later))


def test_an_entry_lives_from_the_start_of_the_request_that_used_it_last() -> None:
    entries = Entries()
    entries.write(b"a", 10, 300, started=1000)
    assert entries.live(b"a", 1299.9)
    assert not entries.live(b"a", 1300)
    entries.refresh([b"a", b"unknown"], started=1200)
    assert entries.live(b"a", 1499.9)
    assert not entries.live(b"unknown", 1200)
    entries.refresh([b"a"], started=1500)  # too late: the dead stay dead
    assert not entries.live(b"a", 1500)


def test_an_entry_keeps_the_ttl_that_it_was_written_with_until_it_is_dead() -> None:
    entries = Entries()
    entries.write(b"a", 10, 300, started=1000)
    entries.write(b"a", 10, 3600, started=1100)
    assert not entries.live(b"a", 1400)
    entries.write(b"a", 10, 3600, started=1500)
    assert entries.live(b"a", 5000)


def test_a_slow_request_does_not_shorten_what_a_later_one_refreshed() -> None:
    entries = Entries()
    entries.write(b"a", 10, 300, started=1000)
    entries.refresh([b"a"], started=1200)
    entries.refresh([b"a"], started=1100)
    assert entries.live(b"a", 1499)


@pytest.mark.parametrize(
    ("model", "bill", "usd"),
    [
        ("claude-sonnet-5-5", Bill(1000, 10_000, 2000, 3000, 100), "0.021"),  # .002 + .001 + .005 + .012 + .001
        ("claude-fable-5-2", Bill(0, 1_000_000), "0.20"),
        ("claude-haiku-5-5", Bill(90_000, output=1000), "0.0095"),
        ("claude-haiku-5-5", Bill(200_000, output=1000), "0.1025"),  # above the cliff: the whole request
        ("claude-haiku-5-5", Bill(1, 99_999), "0.0010000900"),
        ("claude-haiku-5-5", Bill(2, 99_999), "0.00500095"),
        ("gpt-6.2-sol", Bill(272_000, output=1000), "0.554"),
        ("gpt-6.2-sol", Bill(272_001, output=1000), "1.103004"),  # input twice, output one and a half times
        ("gpt-5.5", Bill(1000, 2000, output=10), "0.0063"),
    ],
)
def test_what_a_bill_costs(model: str, bill: Bill, usd: str) -> None:
    """Provider rules 4.3: prices, and the cliffs that raise the whole request."""
    priced = Bill(bill.fresh, bill.read, bill.write_short, bill.write_long, bill.output, ALL.find(model))
    assert priced.usd == Decimal(usd)
    assert bill.usd is None, "without a model there is no price, not a price of 0"


def test_the_clock_only_goes_forward() -> None:
    clock = ManualClock(100)
    clock.advance(2.5)
    assert clock.now() == 102.5
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_an_option_is_found_wherever_it_is_but_not_in_the_words_of_tools() -> None:
    schema = {"type": "object", "properties": {"ttl": {"type": "string"}}}
    body = {"tools": [{"input_schema": schema}], "messages": [{"content": [{"type": "tool_use", "input": {"ttl": 1}}]}]}
    assert place_of("ttl", body) is None
    body["system"] = [{"text": "a"}, {"text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    assert place_of("ttl", body) == "system.1.cache_control.ttl"


def test_a_pause_is_asked_for_in_three_forms() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert retry_after(3) == {"retry-after": "3"}
    assert retry_after(0.5, "milliseconds") == {"retry-after-ms": "500"}
    assert retry_after(90, "date", now=now) == {"retry-after": "Tue, 01 Dec 2026 12:01:30 GMT"}
