"""How each server speaks Chat Completions: its usage, its words for reasoning, its overflow and other errors.

Sources: provider rules 3 as of 2026-12-01; public reports: ggml-org/llama.cpp#15780, #15827 (overflow, timings),
oobabooga/textgen#7257, lmstudio-ai/lmstudio-bug-tracker#237, #546, #2339, OpenHands/OpenHands#9937 (OpenRouter),
zed-industries/zed#45134 and langgenius/dify#32222 (DeepSeek), vllm-project/vllm#33418, ollama/ollama#7661
(silent truncation). What no report shows is marked [from memory].
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .bill import Bill
from .models import Models
from .openai_errors import error_body, refused
from .openai_models import DEEPSEEK
from .script import Failure

Usage = dict[str, Any]


@dataclass(frozen=True)
class Flavour:
    """One server.

    `usage` gives its counters for a bill and the reasoning tokens; `overflow` its answer to (input, output, context)
    tokens, or None if it cuts the prompt silently. `reasoning`: the field that carries the thinking. `strict`: unknown
    parameters are refused. `developer`: whether it knows that role. `whole_calls`: a tool call comes in one delta.
    `usage_with_finish`: the last chunk with a choice carries the usage, asked or not. `timings`: llama-server's.
    `step`, `minimum`: tokens of its automatic cache, which forgets after `lifetime` seconds. `cache_control`: passed
    on to a provider that caches as Anthropic does. `keep_alive`: the comment that it puts between its events.
    `returns_reasoning`: reasoning must come back in a tool loop.
    """

    name: str
    usage: Callable[[Bill, int, int], Usage]
    overflow: Callable[[int, int, int], Failure | None]
    context: int = 131_072
    reasoning: Literal["reasoning", "reasoning_content"] | None = None
    strict: bool = False
    developer: bool = False
    whole_calls: bool = False
    usage_with_finish: bool = False
    timings: bool = False
    cache_control: bool = False
    keep_alive: str | None = None
    returns_reasoning: bool = False
    step: int = 64
    minimum: int = 64
    lifetime: float = 3600.0
    models: Models = field(default_factory=Models)
    names: tuple[str, ...] = ("local-model",)
    errors: Callable[[Failure], Mapping[str, Any] | str] = error_body
    unpaired: str = "The following tool_call_ids did not have response messages: {ids}"


def _plain_usage(bill: Bill, output: int, _reasoning: int) -> Usage:
    total = bill.input_total
    return {"prompt_tokens": total, "completion_tokens": output, "total_tokens": total + output}


def _openai_usage(bill: Bill, output: int, reasoning: int) -> Usage:
    details: Usage = {"cached_tokens": bill.read, "audio_tokens": 0}
    if bill.model is not None and not bill.model.automatic:
        details["cache_write_tokens"] = bill.write_short + bill.write_long
    return {
        **_plain_usage(bill, output, reasoning),
        "prompt_tokens_details": details,
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _cached_usage(bill: Bill, output: int, reasoning: int) -> Usage:
    return {**_plain_usage(bill, output, reasoning), "prompt_tokens_details": {"cached_tokens": bill.read}}


def _no_details(bill: Bill, output: int, reasoning: int) -> Usage:
    """vLLM without --enable-prompt-tokens-details."""
    return {**_plain_usage(bill, output, reasoning), "prompt_tokens_details": None}


def _deepseek_usage(bill: Bill, output: int, reasoning: int) -> Usage:
    return {
        **_cached_usage(bill, output, reasoning),
        "completion_tokens_details": {"reasoning_tokens": reasoning},
        "prompt_cache_hit_tokens": bill.read,
        "prompt_cache_miss_tokens": bill.input_total - bill.read,
    }


def _openrouter_usage(bill: Bill, output: int, reasoning: int) -> Usage:
    cost = bill.with_output(output).usd
    return {
        **_plain_usage(bill, output, reasoning),
        "cost": 0.0 if cost is None else float(cost),
        "is_byok": False,
        "prompt_tokens_details": {
            "cached_tokens": bill.read,
            "cache_write_tokens": bill.write_short + bill.write_long,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


# --- overflow ---


def _openai_overflow(into: int, _output: int, context: int) -> Failure:
    text = (
        f"This model's maximum context length is {context} tokens. However, your messages resulted in {into} tokens. "
        "Please reduce the length of the messages."
    )
    return refused(text, "messages", "context_length_exceeded")


def _deepseek_overflow(into: int, output: int, context: int) -> Failure:
    text = (
        f"This model's maximum context length is {context} tokens. However, you requested {into + output} tokens "
        f"({into} in the messages, {output} in the completion). "
        "Please reduce the length of the messages or completion."
    )
    return refused(text, None, "invalid_request_error")


def _openrouter_overflow(into: int, output: int, context: int) -> Failure:
    text = (
        f"This endpoint's maximum context length is {context} tokens. However, you requested about {into + output} "
        f"tokens ({into} of text input, {output} in the output). Please reduce the length of either one, or use the "
        '"middle-out" transform to compress your prompt automatically.'
    )
    return Failure(400, ("", text), details={"metadata": {"provider_name": None}})


def _vllm_overflow(into: int, _output: int, context: int) -> Failure:
    text = (
        f"This model's maximum context length is {context} tokens. However, your request has {into} input tokens. "
        "Please reduce the length of the input messages."
    )
    return Failure(400, ("BadRequestError", text))


def _llama_overflow(into: int, _output: int, context: int) -> Failure:
    text = f"request ({into} tokens) exceeds the available context size ({context} tokens), try increasing it"
    return Failure(400, ("exceed_context_size_error", text), details={"n_prompt_tokens": into, "n_ctx": context})


def _lmstudio_overflow(into: int, _output: int, context: int) -> Failure:
    text = (
        f"Trying to keep the first {into} tokens when context the overflows. However, the model is loaded with context "
        f"length of only {context} tokens, which is not enough. Try to load the model with a larger context length, or "
        "provide a shorter input"
    )
    return Failure(400, ("", text))


def _silent(_into: int, _output: int, _context: int) -> None:
    return None


# --- error bodies ---


def _coded(failure: Failure) -> dict[str, Any]:
    """llama-server, vLLM: `code` is the status, as a number."""
    kind, message = failure.error or ("", "")
    kind = kind or {400: "invalid_request_error", 503: "unavailable_error"}.get(failure.status, "server_error")
    return {"error": {"code": failure.status, "message": message, "type": kind, **(failure.details or {})}}


def _vllm_body(failure: Failure) -> dict[str, Any]:
    kind, message = failure.error or ("", "")
    kind = kind if kind not in ("", "invalid_request_error") else "BadRequestError"
    return {"error": {"message": message, "type": kind, "param": None, "code": failure.status}}


def _openrouter_body(failure: Failure) -> dict[str, Any]:
    _, message = failure.error or ("", "")
    details = {key: value for key, value in (failure.details or {}).items() if key == "metadata"}
    return {"error": {"message": message, "code": failure.status, **details}}


def _lmstudio_body(failure: Failure) -> dict[str, Any]:
    """LM Studio: the error is a text."""
    return {"error": (failure.error or ("", ""))[1]}


def _ollama_body(failure: Failure) -> dict[str, Any]:
    kind, message = failure.error or ("", "")
    return {"error": {"message": message, "type": kind or "api_error", "param": None, "code": None}}


FLAVOURS: Final = {
    flavour.name: flavour
    for flavour in (
        Flavour("openai", _openai_usage, _openai_overflow, strict=True, developer=True),
        Flavour(
            "deepseek",
            _deepseek_usage,
            _deepseek_overflow,
            context=1_000_000,
            reasoning="reasoning_content",
            usage_with_finish=True,
            keep_alive="keep-alive",
            returns_reasoning=True,
            lifetime=24 * 3600.0,
            models=DEEPSEEK,
            names=("deepseek-flash", "deepseek-v4-pro"),
            unpaired="(insufficient tool messages following tool_calls message)",
        ),
        Flavour(
            "openrouter",
            _openrouter_usage,
            _openrouter_overflow,
            context=1_000_000,
            reasoning="reasoning",
            developer=True,
            cache_control=True,
            keep_alive="OPENROUTER PROCESSING",
            lifetime=600.0,
            names=("anthropic/claude-sonnet-5", "openai/gpt-6.1-sol", "qwen/qwen4-max"),
            errors=_openrouter_body,
        ),
        Flavour("vllm", _cached_usage, _vllm_overflow, reasoning="reasoning", errors=_vllm_body),
        Flavour("vllm-no-details", _no_details, _vllm_overflow, reasoning="reasoning", errors=_vllm_body),
        Flavour(
            "llama-server",
            _cached_usage,
            _llama_overflow,
            reasoning="reasoning_content",
            timings=True,
            errors=_coded,
        ),
        Flavour("ollama", _cached_usage, _silent, reasoning="reasoning", whole_calls=True, errors=_ollama_body),
        Flavour("lmstudio", _plain_usage, _lmstudio_overflow, reasoning="reasoning_content", errors=_lmstudio_body),
    )
}


def timings(bill: Bill, output: int) -> dict[str, Any]:
    """llama-server's `timings`: `cache_n` from the cache, `prompt_n` computed, `predicted_n` generated."""
    computed = bill.input_total - bill.read
    return {
        "cache_n": bill.read,
        "prompt_n": computed,
        "prompt_ms": float(computed),
        "prompt_per_token_ms": 1.0,
        "prompt_per_second": 1000.0,
        "predicted_n": output,
        "predicted_ms": 10.0 * output,
        "predicted_per_token_ms": 10.0,
        "predicted_per_second": 100.0,
    }


def option_refusal(flavour: Flavour, place: str, option: str) -> Failure:
    """The 400 of a server that does not know a parameter, in its words. [from memory]"""
    if flavour.name == "deepseek":
        text = f"Failed to deserialize the JSON body into the target type: {place}: unknown field `{option}`"
        return refused(text, None, "invalid_request_error")
    if flavour.name.startswith("vllm"):
        location = ", ".join(repr(int(each) if each.isdigit() else each) for each in ("body", *place.split(".")))
        text = f"[{{'type': 'extra_forbidden', 'loc': ({location}), 'msg': 'Extra inputs are not permitted'}}]"
        return Failure(400, ("BadRequestError", text))
    if flavour.name == "openai":
        return refused(f"Unknown parameter: '{place}'.", place, "unknown_parameter")
    return Failure(400, ("", f"{place}: unsupported field '{option}'"))
