"""What a Chat Completions server refuses: parameters (OpenAI only), roles, and tool messages without their calls.

Sources: openai SDK 3.57.0, `types/chat/completion_create_params`; provider rules 2.2 and 3 as of 2026-12-01; messages
from public error reports.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .chat_flavours import Flavour
from .models import Model
from .openai_errors import invalid_value, missing_parameter, refused, unknown_parameter, unsupported_parameter
from .openai_models import traits
from .openai_prefix import Body, parts_of
from .responses_rules import words_of
from .script import Failure

CREATE: Final = words_of(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages "
    "metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key "
    "prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed "
    "service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
_MESSAGE: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "function_call"}
)
_PART: Final = frozenset({"type", "text", "image_url", "input_audio", "file", "refusal", "prompt_cache_breakpoint"})
_ORPHAN: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
)
_UNANSWERED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
)
_ROLES: Final = ("system", "user", "assistant", "tool")


def refusal(body: Body, flavour: Flavour, model: Model | None) -> Failure | None:
    """Why the server would not take `body`, or None."""
    if not isinstance(body.get("model"), str):
        return missing_parameter("model")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        return missing_parameter("messages")
    checks = [_messages(body["messages"], flavour), _pairs(body["messages"], flavour)]
    if flavour.strict:
        checks.insert(0, _openai(body, model))
    return next((failure for check in checks for failure in check), None)


def _openai(body: Body, model: Model | None) -> Iterator[Failure]:
    for name in body:
        if name not in CREATE:
            yield unknown_parameter(name)
    if model is None:
        text = f"The model `{body['model']}` does not exist or you do not have access to it."
        yield refused(text, None, "model_not_found", 404)
        return
    limits = traits(model.name)
    if body.get("tools") and not limits.chat_tools:
        text = f"Function tools are not supported with '{model.name}' in /v1/chat/completions. Use /v1/responses."
        yield refused(text, "tools", "unsupported_parameter")
    if body.get("max_tokens") is not None:
        yield unsupported_parameter("max_tokens", " Use 'max_completion_tokens' instead.")
    for name in ("temperature", "top_p"):
        if body.get(name) is not None and (limits.binding or body[name] != 1):
            yield unsupported_parameter(name)
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in limits.efforts:
        yield invalid_value("reasoning_effort", effort, limits.efforts)
    options = body.get("prompt_cache_options")
    if options is not None and model.automatic:
        yield unsupported_parameter("prompt_cache_options")
    for key, value in (options or {}).items():
        allowed = {"mode": ("implicit", "explicit"), "ttl": ("30m",)}.get(key)
        if allowed is None:
            yield unknown_parameter(f"prompt_cache_options.{key}")
        elif value not in allowed:
            yield invalid_value(f"prompt_cache_options.{key}", value, allowed)
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield refused(text, "stream_options")
    for number, message in enumerate(body["messages"]):
        yield from _known_keys(message, f"messages[{number}]")


def _known_keys(message: Body, place: str) -> Iterator[Failure]:
    for key in message:
        if key not in _MESSAGE:
            yield unknown_parameter(f"{place}.{key}")
    content = message.get("content")
    for index, part in enumerate(content if isinstance(content, list) else []):
        for key in part:
            if key not in _PART:
                yield unknown_parameter(f"{place}.content[{index}].{key}")


def _messages(messages: list[Any], flavour: Flavour) -> Iterator[Failure]:
    allowed = (*_ROLES, "developer") if flavour.developer else _ROLES
    for number, message in enumerate(messages):
        place, role = f"messages[{number}]", message.get("role")
        if role not in allowed:
            listed = ", ".join(f"`{each}`" for each in allowed)
            yield refused(f"{place}.role: unknown variant `{role}`, expected one of {listed}", f"{place}.role")
        if message.get("content") is None and not message.get("tool_calls") and role != "assistant":
            yield refused("Invalid value for 'content': expected a string, got null.", f"{place}.content")
        for part in parts_of(message.get("content"), "text"):
            if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
                yield missing_parameter(f"{place}.content[0].type")
        for call in message.get("tool_calls") or []:
            function = call.get("function") or {}
            if not isinstance(function.get("arguments"), str) or not function.get("name") or not call.get("id"):
                yield refused(f"{place}.tool_calls: a call needs id, function.name and arguments as a string", place)


def _pairs(messages: list[Any], flavour: Flavour) -> Iterator[Failure]:
    """A message with calls is followed at once by one tool message for each of them."""
    due: list[str] = []
    for number, message in enumerate([*messages, {"role": "end"}]):
        place = f"messages.[{number}].role"
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered not in due:
                yield refused(_ORPHAN, place)
            else:
                due.remove(answered)
            continue
        if due:
            yield refused(_UNANSWERED + flavour.unpaired.format(ids=", ".join(due)), place)
        due = [call.get("id", "") for call in message.get("tool_calls") or []]
