"""What Anthropic's API refuses, checked on every request, so that no test passes with a body that would be a 400.

Sources: provider rules 1.1 to 1.4, 1.7, 1.8 and 1.11 as of 2026-12-01 (documentation, SDK 2.14.0).
"""

from collections.abc import Iterator, Set
from typing import Any

from .bodies import Body, content_parts, elements, markers
from .models import Model

COMPACTION_BETA = "compact-2026-09-04"
BINDING_BETA = "thinking-binding-controls-2026-08-01"
MOST_BYTES = 32 * 1024 * 1024
_MOST_MESSAGES = 100_000
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_REMOVED = ("temperature", "top_p", "top_k")
_FIELDS = frozenset(
    (
        "betas",
        "billing_policy",
        "cache_control",
        "compaction",
        "container",
        "context_management",
        "diagnostics",
        "fallback_credit_token",
        "fallbacks",
        "inference_geo",
        "max_tokens",
        "mcp_servers",
        "messages",
        "metadata",
        "model",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "thread",
        "tool_choice",
        "tools",
        "user_profile_id",
        "workspace_id",
    )
)
_ROLES = ("user", "assistant", "system")


def refusal(body: Body, model: Model, betas: Set[str] = frozenset(), *, counting: bool = False) -> str | None:
    """Why the API would answer 400, or None. `counting`: for count_tokens, which needs no max_tokens."""
    return next(_refusals(body, model, betas, counting), None)


def _refusals(body: Body, model: Model, betas: Set[str], counting: bool) -> Iterator[str]:
    for name in body:
        if name in _REMOVED or name not in _FIELDS:
            yield f"{name}: Extra inputs are not permitted"
    if not counting:
        yield from _limits(body, model)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    if len(messages) > _MOST_MESSAGES:
        yield f"messages: at most {_MOST_MESSAGES} messages are allowed"
    yield from _options(body, model)
    yield from _betas(body, betas)
    yield from _content(messages)
    yield from _roles(messages, model, compacting=body.get("compaction") is not None)
    yield from _markers(body)
    yield from _pairing(messages)


def _limits(body: Body, model: Model) -> Iterator[str]:
    most = body.get("max_tokens")
    if not isinstance(most, int) or isinstance(most, bool):
        yield "max_tokens: Field required"
    elif most < 0:
        yield "max_tokens: Input should be greater than or equal to 0"
    elif most > model.max_output:
        yield (
            f"max_tokens: {most} > {model.max_output}, which is the maximum allowed number of output tokens for "
            f"{model.name}"
        )
    elif most == 0:
        if body.get("stream"):
            yield "max_tokens: 0 cannot be combined with stream"
        if (body.get("thinking") or {}).get("type") == "enabled":
            yield "max_tokens: 0 cannot be combined with thinking.type enabled"
        if (body.get("output_config") or {}).get("format"):
            yield "max_tokens: 0 cannot be combined with output_config.format"
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
            yield "max_tokens: 0 cannot be combined with a forced tool_choice"


def _options(body: Body, model: Model) -> Iterator[str]:
    thinking = body.get("thinking") or {}
    kind = thinking.get("type")
    if kind is not None and kind not in model.thinking:
        yield f"thinking.type: {kind!r} is not supported on {model.name}"
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif isinstance(body.get("max_tokens"), int) and budget >= body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    effort = (body.get("output_config") or {}).get("effort")
    if effort is not None and model.effort is None:
        yield f"output_config.effort: This model does not support the effort parameter ({model.name})"
    if effort is not None and effort not in _EFFORTS:
        yield f"output_config.effort: Input should be one of {', '.join(_EFFORTS)}"
    yield from _tool_choice(body, model)


def _tool_choice(body: Body, model: Model) -> Iterator[str]:
    choice = body.get("tool_choice") or {}
    if not choice:
        return
    if not body.get("tools"):
        yield "tool_choice: tool_choice may only be specified while providing tools"
    if choice.get("type") in ("any", "tool"):
        if not model.forced_tools:
            yield f"tool_choice: {choice['type']!r} is not supported on {model.name}; use 'auto' or 'none'"
        thinking = (body.get("thinking") or {}).get("type") or model.thinking[0]
        if thinking != "disabled":
            yield "Thinking may not be enabled when tool_choice forces tool use."
    names = [tool.get("name") for tool in body.get("tools") or []]
    if choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"tool_choice.tool.name: Tool {choice.get('name')!r} not found in provided tools"


def _betas(body: Body, betas: Set[str]) -> Iterator[str]:
    compaction = body.get("compaction")
    if compaction is not None:
        if COMPACTION_BETA not in betas:
            yield "compaction: Extra inputs are not permitted"
        if compaction.get("type") != "summarize":
            yield "compaction.type: Input should be 'summarize'"
        if body.get("context_management") is not None:
            yield "compaction: cannot be combined with context_management"
    if body.get("context_management") is not None and not any(beta.startswith("context-management-") for beta in betas):
        yield "context_management: Extra inputs are not permitted"
    if "block_binding" in (body.get("thinking") or {}) and BINDING_BETA not in betas:
        yield "thinking.block_binding: Extra inputs are not permitted"


def _content(messages: list[Any]) -> Iterator[str]:
    for number, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            yield f"messages.{number}.role: Input should be 'user', 'assistant' or 'system'"
        parts = content_parts(message)
        if not parts:
            yield f"messages.{number}: all messages must have non-empty content"
        for index, part in enumerate(parts):
            yield from _part(part, f"messages.{number}.content.{index}", message["role"], first=number == 0)


def _part(part: Any, place: str, role: str, *, first: bool) -> Iterator[str]:
    match part.get("type"):
        case "text":
            if not part["text"].strip():
                yield f"{place}: text content blocks must contain non-whitespace text"
            if role == "user" and part.get("citations"):
                yield f"{place}.citations: citations are not permitted on user text"
        case "tool_use":
            if not isinstance(part.get("input"), dict):
                yield f"{place}: tool_use.input: Input should be a valid dictionary"
            if role != "assistant":
                yield f"{place}: tool_use blocks are only allowed in assistant messages"
        case "tool_result" if role != "user":
            yield f"{place}: tool_result blocks are only allowed in user messages"
        case "thinking" | "redacted_thinking" if role != "assistant":
            yield f"{place}: thinking blocks are only allowed in assistant messages"
        case "thinking" if not part.get("signature"):
            yield f"{place}.signature: Field required"
        case "document" if role == "assistant":
            yield f"{place}: document blocks are not permitted in assistant messages"
        case "compaction" if not first:
            yield f"{place}: a compaction block must come first in messages"
        case "compaction" if part.get("content") == "":
            yield f"{place}.content: compaction content must not be empty"
        case None:
            yield f"{place}.type: Field required"


def _roles(messages: list[Any], model: Model, *, compacting: bool) -> Iterator[str]:
    """A request to compact samples nothing behind the conversation, so that it may end anywhere."""
    if messages[-1]["role"] == "assistant" and not model.prefill and not compacting:
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    for number, message in enumerate(messages):
        if message["role"] != "system":
            continue
        if not model.system_messages:
            yield f"messages.{number}.role: 'system' messages are not supported on {model.name}"
        if number == 0 or messages[number - 1]["role"] != "user":
            yield f"messages.{number}: a system message must follow a user message"
        if number + 1 < len(messages) and messages[number + 1]["role"] != "assistant":
            yield f"messages.{number}: a system message must be last or come before an assistant message"


def _markers(body: Body) -> Iterator[str]:
    found = markers(body)
    automatic = body.get("cache_control")
    for place, element in elements(body):
        control = element.get("cache_control")
        if control is None:
            continue
        if element.get("type") in ("thinking", "redacted_thinking"):
            yield f"{place}: cache_control cannot be set on thinking blocks"
        if element.get("type") == "text" and not element.get("text"):
            yield f"{place}: cache_control cannot be set for empty text blocks"
    for control in [automatic, *(element.get("cache_control") for _, element in elements(body))]:
        if control is None:
            continue
        if control.get("type") != "ephemeral":
            yield "cache_control.type: Input should be 'ephemeral'"
        if control.get("ttl", "5m") not in ("5m", "1h"):
            yield "cache_control.ephemeral.ttl: Input should be '5m' or '1h'"
    if automatic is not None:
        places = [place for place, element in elements(body) if element.get("type") not in ("thinking",)]
        ttl = automatic.get("ttl", "5m")
        at_last = next((given for place, given in found if places and place == places[-1]), None)
        if at_last not in (None, ttl):
            yield "cache_control: the last block has a cache_control marker with a different ttl"
        if at_last is None:
            found.append(("cache_control", ttl))
    if len(found) > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(found)}."
    ttls = [ttl for _, ttl in found]
    if ttls != sorted(ttls):  # "1h" sorts before "5m"
        yield "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"


def _pairing(messages: list[Any]) -> Iterator[str]:
    """Each tool_use is answered in the next user turn, and nothing else is; turns of one role count as one."""
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(content_parts(message))
        else:
            turns.append((message["role"], list(content_parts(message))))
    open_calls: list[str] = []
    for role, parts in turns:
        if role == "user":
            results = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
            if sorted(results) != sorted(open_calls):
                yield f"tool_result ids {results} do not answer the tool_use ids {open_calls}"
            if any(part["type"] == "tool_result" for part in parts[len(results) :]):
                yield "tool_result blocks must come first in the message"
        elif open_calls:
            yield f"tool_use ids {open_calls} were found without tool_result blocks"
        open_calls = [part["id"] for part in parts if part["type"] == "tool_use"] if role == "assistant" else []
        if len(set(open_calls)) < len(open_calls):
            yield "messages: `tool_use` ids must be unique"
    if open_calls:
        yield f"tool_use ids {open_calls} were found without tool_result blocks"
