"""What the emulated Messages API refuses: a test must not pass with a body that would be a 400."""

from collections.abc import Set
from typing import Any

import pytest
from emulator.anthropic_rules import BINDING_BETA, COMPACTION_BETA, refusal
from emulator.models import ALL

HOUR = {"type": "ephemeral", "ttl": "1h"}
SHORT = {"type": "ephemeral"}
TEXT = {"type": "text", "text": "x"}
USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
TOOLS = [{"name": "read", "description": "Read.", "input_schema": {"type": "object"}}]


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def body(**changes: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-5-5", "max_tokens": 5, "messages": [message("user", TEXT)], **changes}


def refused(request: dict[str, Any], betas: Set[str] = frozenset()) -> str | None:
    model = ALL.find(request["model"])
    assert model is not None
    return refusal(request, model, betas)


def marked(*markers: dict[str, str] | None) -> list[dict[str, Any]]:
    """One user message with a text for each marker or None."""
    return [message("user", *({**TEXT, **({"cache_control": each} if each else {})} for each in markers))]


ASKED = [message("user", TEXT), message("assistant", USE)]
WARM = {"max_tokens": 0}
FORCED = {"tools": TOOLS, "tool_choice": {"type": "any"}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"temperature": 1}, "temperature: Extra inputs"),
        ({"top_p": 0.9}, "top_p"),
        ({"top_k": 5}, "top_k"),
        ({"prompt_cache_key": "k"}, "prompt_cache_key: Extra inputs"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 128_001}, "maximum allowed number of output tokens"),
        ({"messages": []}, "at least one message"),
        ({"messages": [message("user", TEXT), message("assistant", TEXT)]}, "prefill"),
        ({"messages": [message("user")]}, "non-empty"),
        ({"messages": [message("user", {"type": "text", "text": " "})]}, "non-whitespace"),
        ({"messages": [message("user", {**TEXT, "citations": [1]})]}, "citations"),
        ({"messages": [*ASKED, message("user", TEXT)]}, "do not answer"),
        ({"messages": [message("user", RESULT)]}, "do not answer"),
        ({"messages": [*ASKED, message("user", TEXT, RESULT)]}, "must come first"),
        ({"messages": [*ASKED, message("user", RESULT, RESULT)]}, "do not answer"),
        ({"messages": [message("user", TEXT), message("assistant", USE, USE), message("user", RESULT)]}, "unique"),
        (
            {"messages": [message("user", TEXT), message("assistant", {"type": "document"}), message("user", TEXT)]},
            "doc",
        ),
        ({"messages": [message("user", TEXT), message("assistant", {"type": "thinking"})]}, "signature"),
        ({"messages": [message("system", TEXT)]}, "must follow a user message"),
        ({"messages": [*marked(None), message("system", TEXT), message("user", TEXT)]}, "must be last or come before"),
        ({"messages": marked(*[SHORT] * 5)}, "Found 5"),
        ({"messages": marked(*[SHORT] * 4, None), "cache_control": SHORT}, "Found 5"),
        ({"messages": marked(SHORT, HOUR)}, "must not come after"),
        ({"messages": marked(SHORT, None), "cache_control": HOUR}, "must not come after"),
        ({"messages": marked(HOUR), "cache_control": SHORT}, "different ttl"),
        ({"messages": marked({"type": "ephemeral", "ttl": "2h"})}, "ttl"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking.type"),
        ({"thinking": {"type": "disabled"}}, "thinking.type"),
        ({"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 9}}, "budget_tokens"),
        ({"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 2000}}, "greater than"),
        ({"model": "claude-haiku-4-5", "thinking": {"type": "adaptive"}}, "thinking.type"),
        ({"model": "claude-haiku-4-5", "output_config": {"effort": "low"}}, "effort"),
        ({"output_config": {"effort": "enormous"}}, "effort"),
        (FORCED, "tool_choice"),
        ({"model": "claude-opus-5", **FORCED, "thinking": {"type": "adaptive"}}, "forces tool use"),
        ({"tool_choice": {"type": "auto"}}, "while providing tools"),
        ({"model": "claude-opus-5", "tools": TOOLS, "tool_choice": {"type": "tool", "name": "write"}}, "not found"),
        ({**WARM, "stream": True}, "stream"),
        ({**WARM, "output_config": {"format": {"type": "json_schema"}}}, "format"),
        ({**WARM, "model": "claude-opus-5", **FORCED}, "forced tool_choice"),
        (
            {**WARM, "model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 2000}},
            "thinking.type enabled",
        ),
        ({"compaction": {"type": "summarize"}}, "compaction"),
        ({"context_management": {"edits": []}}, "context_management"),
        ({"thinking": {"type": "adaptive", "block_binding": {}}}, "block_binding"),
    ],
)
def test_what_the_api_refuses_is_refused(change: dict[str, Any], says: str) -> None:
    """Field report 34 (five markers) and the other bodies that are a permanent 400."""
    assert says in str(refused(body(**change)))


COMPACTED = {"type": "compaction", "content": "Summary.", "signature": "s"}


@pytest.mark.parametrize(
    ("change", "betas"),
    [
        ({}, set()),
        ({"messages": [*ASKED, message("user", RESULT, TEXT)]}, set()),
        ({"messages": [*ASKED, message("user", RESULT), message("user", TEXT)]}, set()),
        ({"messages": [*ASKED, message("user", RESULT), message("system", TEXT)]}, set()),
        ({"messages": marked(HOUR, SHORT, SHORT), "cache_control": SHORT}, set()),
        ({"messages": marked(HOUR, HOUR, SHORT, SHORT), "cache_control": SHORT}, set()),
        ({"model": "claude-opus-5", **FORCED}, set()),
        ({"model": "claude-haiku-4-5", "messages": [message("user", TEXT), message("assistant", TEXT)]}, set()),
        ({**WARM, "thinking": {"type": "adaptive"}}, set()),
        ({"compaction": {"type": "summarize"}}, {COMPACTION_BETA}),
        ({"messages": [message("assistant", COMPACTED), message("user", TEXT)]}, {COMPACTION_BETA}),
        ({"thinking": {"type": "adaptive", "block_binding": {}}}, {BINDING_BETA}),
    ],
)
def test_a_good_body_is_not_refused(change: dict[str, Any], betas: set[str]) -> None:
    assert refused(body(**change), betas) is None


def test_a_compaction_cannot_be_combined_with_context_editing() -> None:
    request = body(compaction={"type": "summarize"}, context_management={"edits": []})
    assert "cannot be combined" in str(refused(request, {COMPACTION_BETA, "context-management-2025-06-27"}))
