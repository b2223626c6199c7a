"""The test server's own cache and rules, against the documentation's examples: the other tests lean on them."""

from typing import Any

import pytest
from loopback import PrefixCache
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
