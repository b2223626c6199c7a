"""What the Responses API refuses, checked on every request, so that a test cannot pass with a body that would be a 400.

Sources: openai SDK 3.57.0, `response_create_params` and `response_input_item_param`; provider rules 2.1 to 2.4 as of
2026-12-01; messages from public error reports.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .models import Model
from .openai_errors import invalid_value, missing_parameter, refused, unknown_parameter, unsupported_parameter
from .openai_models import traits
from .openai_prefix import Body, input_items, item_kind, run_kind
from .script import Failure


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


CREATE: Final = words_of(
    "access_programs background background_options context_management conversation image include input instructions "
    "max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt "
    "prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store "
    "stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user generate"
)
COMPACT: Final = words_of(
    "model input instructions previous_response_id prompt_cache_key prompt_cache_options prompt_cache_retention "
    "service_tier image"
)
COUNT: Final = words_of(
    "conversation input instructions model parallel_tool_calls personality previous_response_id reasoning text "
    "tool_choice tools truncation"
)
_NESTED: Final = {
    "prompt_cache_options": frozenset({"mode", "ttl", "prewarm", "comparison_response_id"}),
    "reasoning": frozenset({"context", "effort", "generate_summary", "mode", "summary"}),
    "stream_options": frozenset({"include_obfuscation"}),
    "text": frozenset({"format", "verbosity"}),
}
_VALUES: Final = {
    ("prompt_cache_options", "mode"): ("implicit", "explicit"),
    ("prompt_cache_options", "ttl"): ("30m", "12h"),
    ("reasoning", "summary"): ("auto", "concise", "detailed"),
    ("reasoning", "context"): ("auto", "current_turn", "all_turns"),
    ("text", "verbosity"): ("low", "medium", "high"),
}
_INCLUDE: Final = (
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
)
_ITEM_KEYS: Final = {
    "message": {"type", "role", "content", "status", "id", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status", "namespace", "caller", "async"},
    "function_call_output": {"type", "id", "call_id", "output", "status", "name", "namespace", "caller"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "compaction": {"type", "id", "encrypted_content", "created_by"},
    "configuration_update": {"type", "id", "reasoning", "text"},
    "additional_tools": {"type", "id", "role", "tools"},
    "compaction_trigger": {"type", "id"},
}
_INPUT_PARTS: Final = ("input_text", "input_image", "input_file")
_OUTPUT_PARTS: Final = ("output_text", "refusal")
_PART_KEYS: Final = {
    "input_text": {"type", "text", "prompt_cache_breakpoint"},
    "input_image": {"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"},
    "input_file": {"type", "file_data", "file_id", "file_url", "filename", "detail", "prompt_cache_breakpoint"},
    "output_text": {"type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"},  # there it is ignored
    "refusal": {"type", "refusal"},
}
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def refusal(body: Body, model: Model | None, known: frozenset[str] = CREATE) -> Failure | None:
    """Why the API would not take `body`, or None. `known`: the parameters of the endpoint."""
    for name in body:
        if name not in known:
            return unknown_parameter(name)
    if not isinstance(body.get("model"), str):
        return missing_parameter("model")
    if model is None:
        text = f"The requested model '{body['model']}' does not exist."
        return refused(text, "model", "model_not_found")
    if not body.get("input"):
        return missing_parameter("input")
    if earlier := body.get("previous_response_id"):  # the emulator keeps no conversation
        text = f"Previous response with id '{earlier}' not found."
        return refused(text, "previous_response_id", "previous_response_not_found")
    checks = (_parameters(body, model), _caching(body, model), _tools(body), _items(input_items(body), model))
    return next((failure for check in checks for failure in check), None)


def _parameters(body: Body, model: Model) -> Iterator[Failure]:
    limits = traits(model.name)
    for name, keys in _NESTED.items():
        for key, value in (body.get(name) or {}).items():
            place = f"{name}.{key}"
            if key not in keys:
                yield unknown_parameter(place)
            if value is not None and (allowed := _VALUES.get((name, key))) and value not in allowed:
                yield invalid_value(place, value, allowed)
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield refused(text, "stream_options", "invalid_parameter")
    for name in ("temperature", "top_p"):
        if body.get(name) is not None and (limits.binding or body[name] != 1):
            yield unsupported_parameter(name)
    if body.get("top_logprobs") and limits.binding:
        yield unsupported_parameter("top_logprobs")
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None and effort not in limits.efforts:
        listed = ", ".join(f"'{each}'" for each in limits.efforts)
        text = (
            f"Unsupported value: '{effort}' is not supported with the '{model.name}' model. "
            f"Supported values are: {listed}."
        )
        yield refused(text, "reasoning.effort", "unsupported_value")
    limit = body.get("max_output_tokens")
    if limit is not None and limit < 16:
        text = (
            "Invalid 'max_output_tokens': integer below minimum value. "
            f"Expected a value >= 16, but got {limit} instead."
        )
        yield refused(text, "max_output_tokens", "integer_below_min_value")
    if limit is not None and limit > model.max_output:
        text = (
            "Invalid 'max_output_tokens': integer above maximum value. "
            f"Expected a value <= {model.max_output}, but got {limit} instead."
        )
        yield refused(text, "max_output_tokens", "integer_above_max_value")
    for number, name in enumerate(body.get("include") or []):
        if name not in _INCLUDE:
            yield invalid_value(f"include[{number}]", name, _INCLUDE)


def _caching(body: Body, model: Model) -> Iterator[Failure]:
    if model.automatic and body.get("prompt_cache_options") is not None:
        yield unsupported_parameter("prompt_cache_options")
    key = body.get("prompt_cache_key")
    if key is not None and len(key) > 64:
        text = (
            "Invalid 'prompt_cache_key': string too long. "
            f"Expected a string with maximum length 64, but got a string with length {len(key)} instead."
        )
        yield refused(text, "prompt_cache_key", "string_above_max_length")
    retention = body.get("prompt_cache_retention")
    if retention is not None and retention != "24h":
        yield invalid_value("prompt_cache_retention", retention, ("24h",))


def _tools(body: Body) -> Iterator[Failure]:
    names = set()
    for number, tool in enumerate(body.get("tools") or []):
        place = f"tools[{number}]"
        if tool.get("type") != "function":
            yield from () if tool.get("type") else (missing_parameter(f"{place}.type"),)
            continue
        if not isinstance(tool.get("name"), str):  # Chat Completions nests it in `function`
            yield missing_parameter(f"{place}.name")
            continue
        if not _NAME.fullmatch(tool["name"]):
            text = (
                f"Invalid '{place}.name': string does not match pattern. "
                "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
            yield refused(text, f"{place}.name", "invalid_value")
        for key in tool:
            if key not in ("type", "name", "description", "parameters", "strict", "defer_loading", "async"):
                yield unknown_parameter(f"{place}.{key}")
        names.add(tool["name"])
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "function" and choice.get("name") not in names:
        text = f"Tool choice 'function' not found in 'tools' parameter: '{choice.get('name')}'."
        yield refused(text, "tool_choice", None)


def _items(items: list[Any], model: Model) -> Iterator[Failure]:
    calls, answered = set[str](), set[str]()
    for number, item in enumerate(items):
        place, kind = f"input[{number}]", item_kind(item)
        if kind not in _ITEM_KEYS:
            yield invalid_value(place, kind, tuple(_ITEM_KEYS))
            continue
        for key in item:
            if key not in _ITEM_KEYS[kind]:
                yield unknown_parameter(f"{place}.{key}")
        yield from _content(item, place, kind, model)
        if kind == "function_call":
            calls.add(item.get("call_id", ""))
        elif kind == "function_call_output":
            call = item.get("call_id", "")
            if call not in calls or call in answered:
                yield refused(f"No tool call found for function call output with call_id {call}.", "input")
            answered.add(call)
        elif kind == "reasoning":
            yield from _reasoning(item, items[number + 1] if number + 1 < len(items) else None)
    for call in sorted(calls - answered):
        yield refused(f"No tool output found for function call {call}.", "input")


def _reasoning(item: Body, following: Body | None) -> Iterator[Failure]:
    name = item.get("id")
    if not item.get("encrypted_content"):
        text = (
            f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. "
            "Try again with `store` set to true, or remove this item from your input."
        )
        yield refused(text, "input", None, 404)
    if following is None or run_kind(following) != "reply":
        text = f"Item '{name}' of type 'reasoning' was provided without its required following item."
        yield refused(text, "input")


def _content(item: Body, place: str, kind: str, model: Model) -> Iterator[Failure]:
    if kind == "message":
        role = item.get("role")
        if role not in ("user", "assistant", "system", "developer"):
            yield invalid_value(f"{place}.role", role, ("assistant", "system", "developer", "user"))
            return
        allowed, content, inside = (
            (_OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS),
            item.get("content"),
            "content",
        )
    elif kind == "function_call_output":
        allowed, content, inside = _INPUT_PARTS, item.get("output"), "output"
    else:
        for required in ("call_id", "name", "arguments") if kind == "function_call" else ():
            if not isinstance(item.get(required), str):
                yield missing_parameter(f"{place}.{required}")
        return
    if content is None:
        yield missing_parameter(f"{place}.{inside}")
    if not isinstance(content, list):
        return
    for index, part in enumerate(content):
        here = f"{place}.{inside}[{index}]"
        if part.get("type") not in allowed:
            yield invalid_value(here, part.get("type"), allowed)
            continue
        for key in part:
            if key not in _PART_KEYS[part["type"]]:
                yield unknown_parameter(f"{here}.{key}")
        if (marker := part.get("prompt_cache_breakpoint")) is not None and part["type"] != "output_text":
            yield from _breakpoint(marker, f"{here}.prompt_cache_breakpoint", model)


def _breakpoint(marker: Body, place: str, model: Model) -> Iterator[Failure]:
    if model.automatic:
        yield unsupported_parameter(place)
    for key in marker:
        if key not in ("mode", "ttl"):
            yield unknown_parameter(f"{place}.{key}")
    if marker.get("mode") != "explicit":
        yield invalid_value(f"{place}.mode", marker.get("mode"), ("explicit",))
    if marker.get("ttl") not in (None, "30m", "12h"):
        yield invalid_value(f"{place}.ttl", marker.get("ttl"), ("30m", "12h"))
