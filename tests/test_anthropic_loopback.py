"""The test server's own cache and rules, against the documentation's examples: the other tests lean on them."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
from loopback import PrefixCache, Recorded, assert_extends
from loopback.rules import refusal


def conversation(blocks: int, marked: tuple[int, ...], ttl: str = "5m") -> dict[str, Any]:
    """A body of one user message whose content has `blocks` parts, of which those numbered `marked` (from 1) are."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": f"{number} " + "word " * 60} for number in range(blocks)]
    for number in marked:
        parts[number - 1]["cache_control"] = {"type": "ephemeral", **({"ttl": ttl} if ttl == "1h" else {})}
    return {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": parts}]}


def test_an_entry_more_than_twenty_blocks_back_is_not_found() -> None:
    """The documentation's example: written at block 15, asked again with 35 blocks."""
    cache = PrefixCache(min_tokens=100)
    written = cache.bill(conversation(15, (15,)))
    assert PrefixCache(100).bill(conversation(15, (15,)))["cache_read_input_tokens"] == 0
    assert cache.bill(conversation(35, (35,)))["cache_read_input_tokens"] == 0
    cache = PrefixCache(min_tokens=100)
    cache.bill(conversation(15, (15,)))
    found = cache.bill(conversation(35, (15, 35)))
    assert found["cache_read_input_tokens"] == written["cache_creation_input_tokens"]
    cache = PrefixCache(min_tokens=100)
    cache.bill(conversation(15, (15,)))
    assert cache.bill(conversation(34, (34,)))["cache_read_input_tokens"] > 0


def test_a_short_prefix_is_silently_not_cached() -> None:
    bill = PrefixCache(min_tokens=10_000).bill(conversation(3, (3,)))
    assert (bill["cache_creation_input_tokens"], bill["cache_read_input_tokens"]) == (0, 0)
    assert bill["input_tokens"] > 0


def test_long_and_short_writes_are_told_apart() -> None:
    body = conversation(6, (2,), "1h")
    body["messages"][0]["content"][4]["cache_control"] = {"type": "ephemeral"}
    bill = PrefixCache(min_tokens=1).bill(body)
    split = bill["cache_creation"]
    assert split["ephemeral_1h_input_tokens"] > 0
    assert split["ephemeral_5m_input_tokens"] > 0
    assert sum(split.values()) == bill["cache_creation_input_tokens"]


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


TEXT = {"type": "text", "text": "x"}
USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"temperature": 0}, "temperature"),
        ({"messages": []}, "at least one message"),
        ({"messages": [message("user", TEXT), message("assistant", TEXT)]}, "prefill"),
        ({"messages": [message("user", {"type": "text", "text": " "})]}, "non-whitespace"),
        ({"messages": [message("user", TEXT), message("assistant", USE), message("user", TEXT)]}, "do not answer"),
        ({"messages": [message("user", RESULT)]}, "do not answer"),
        (
            {"messages": [message("user", TEXT), message("assistant", USE), message("user", TEXT, RESULT)]},
            "must come first",
        ),
        ({"messages": conversation(5, (1, 2, 3, 4, 5))["messages"]}, "Found 5"),
    ],
)
def test_what_the_api_refuses_is_refused(change: dict[str, Any], says: str) -> None:
    assert says in str(refusal({**conversation(1, ()), **change}))


def test_a_long_marker_behind_a_short_one_is_refused() -> None:
    body = conversation(2, (2,), "1h")
    body["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert "must not come after" in str(refusal(body))


def test_a_good_body_is_not_refused() -> None:
    turns = [message("user", TEXT), message("assistant", USE), message("user", RESULT), message("user", TEXT)]
    assert refusal({**conversation(1, ()), "messages": turns}) is None


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
