"""What the wording of an error means: the prompt is too long, the money is gone, a cache option is refused, the model's
tool call could not be read.

Codes are not enough. Most servers that speak one of the cloud APIs put what happened into a sentence, each in its own
words. The sentences were collected from public reports and the providers' documentation, 2026-12-01; the tests hold one
of each.
"""

import re
from typing import Final

from backends.base import CacheOption


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_TOO_LONG: Final = _any_of(
    r"prompt is too long",  # Anthropic, Ollama
    r"input is too long",  # Bedrock
    r"exceeds? (the |this )?(maximum |model'?s? )*context",  # OpenAI, Anthropic, llama-cpp-python, LiteLLM
    r"exceeds the (available )?context (size|length|window)",  # llama-server, Ollama
    r"context (size|length|window)( has been)? exceed",  # LM Studio, OpenAI, MiniMax
    r"context (length|window|size) (of |is )?only",  # LM Studio
    r"maximum (context|model) length",  # OpenAI, DeepSeek, OpenRouter, vLLM
    r"longer than the (model'?s )?(context|model) length",  # SGLang
    r"maximum prompt length",  # xAI
    r"(does not|doesn'?t) fit in (the )?context",  # LM Studio
    r"greater than the context length",  # LM Studio
    r"n_keep .{0,20}>= n_ctx",  # LM Studio
    r"input token count .{0,20}exceeds the maximum",  # Gemini
    r"input length .{0,20}exceeds the maximum",  # SGLang
    r"input length and `?max_tokens`? exceed",  # Anthropic
    r"too large for model with \d+ maximum context",  # Mistral
    r"reduce the length of (the |your )?(input )?(messages|prompt)",  # Groq, Cerebras
    r"exceed(s|ed) model token limit",  # Moonshot
    r"prompt (token count of \d+ )?exceeds (the limit of \d|max length)",  # GitHub Copilot, Z.ai
    r"range of input length should be",  # Qwen
    r"tokens in the prompt cannot exceed",  # Cohere
    r"too many (input |total text )?(tokens|bytes)(?!, please wait)",  # but Bedrock's rate limit
)
_TOO_LONG_CODES: Final = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Groq, Cerebras
        "exceed_context_size_error",  # llama-server
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
        "request_too_large",  # Anthropic
        "string_above_max_length",  # OpenAI, one text of over 10 MB
    }
)
# How these sentences name the size of the window.
_WINDOW: Final = _any_of(
    r" > (\d[\d,]*)(?: maximum|$)",  # Anthropic
    r"(?:context|model|prompt) (?:size|length|window)(?: of| is)?(?: only)?(?: supports)? \(?(\d[\d,]*)",  # most others
    r">= n_ctx \((\d[\d,]*)",  # LM Studio
    r"model with (\d[\d,]*) maximum context",  # Mistral
    r"exceeds the maximum[^.;\d]{0,40}(\d[\d,]*)",  # Gemini, SGLang
)
# A single request over the limit of a whole minute: no waiting makes it smaller (OpenAI, Groq).
_OVER_A_MINUTE: Final = _any_of(r"request too large for .{0,200}tokens per min")

_MONEY: Final = _any_of(
    r"credit balance",  # Anthropic
    r"spend(ing)? (limit|cap)",  # Anthropic, xAI
    r"usage limit",
    r"budget has been exceeded",  # LiteLLM
    r"billing",
    r"insufficient (balance|credits|funds|quota)",  # DeepSeek, OpenRouter, Moonshot
    r"(requires more|out of|used all available) credits",  # OpenRouter, xAI
    r"exceeded your current quota",  # OpenAI, Gemini
)
_MONEY_CODES: Final = frozenset(
    {
        "insufficient_quota",  # OpenAI
        "billing_hard_limit_reached",  # OpenAI
        "billing_not_active",  # OpenAI
        "exceeded_current_quota_error",  # Moonshot
        "contract_spend_limit_reached",  # Anthropic, and the following
        "enforced_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "linked_organization_spend_limit_reached",
    }
)

# A server that parses the model's tool call fails with the whole reply when it cannot. The next one may be right.
_BROKEN_CALL: Final = _any_of(
    r"failed to parse tool call arguments",  # llama-server
    r"error parsing tool call",  # Ollama
    r"failed to call a function",  # Groq
)
_BROKEN_CALL_CODES: Final = frozenset({"tool_use_failed"})  # Groq


def too_long(message: str, *codes: str) -> bool:
    """Whether the error says that the prompt does not fit the context window."""
    return any(code in _TOO_LONG_CODES for code in codes) or bool(_TOO_LONG.search(message))


def named_window(message: str) -> int | None:
    """Tokens of the context window that a prompt does not fit, as the error names it."""
    found = _WINDOW.search(message)
    number = next((group for group in found.groups() if group), "") if found else ""
    return int(number.replace(",", "")) or None if number else None


def over_a_minute(message: str) -> bool:
    """Whether this one request is larger than what the account may send in a minute."""
    return bool(_OVER_A_MINUTE.search(message))


def money_is_gone(message: str) -> bool:
    """Whether the error speaks of credit or of a spending limit."""
    return bool(_MONEY.search(message))


def is_money_code(*codes: str) -> bool:
    """Whether a code says that credit or a spending limit is used up."""
    return any(code in _MONEY_CODES for code in codes)


def broken_call(message: str, *codes: str) -> bool:
    """Whether the server could not read the tool call that its model wrote."""
    return any(code in _BROKEN_CALL_CODES for code in codes) or bool(_BROKEN_CALL.search(message))


_OPTIONS: Final = {
    "ttl": CacheOption.LONG_TTL,
    "prompt_cache_retention": CacheOption.LONG_TTL,
    "cache_control": CacheOption.MARKERS,
    "cachepoint": CacheOption.MARKERS,  # Bedrock's word for it
    "prompt_cache_breakpoint": CacheOption.MARKERS,
    "prompt_cache_options": CacheOption.MODE,
    "prompt_cache_key": CacheOption.KEY,
    "diagnostics": CacheOption.DIAGNOSTICS,
    "comparison_response_id": CacheOption.DIAGNOSTICS,
    "stream_options": CacheOption.USAGE,
}
_NAME: Final = (
    r"(?<![\w-])(?P<name>ttl|prompt_cache_(?:retention|breakpoint|options|key)|cache_control|cachePoint|diagnostics"
    r"|comparison_response_id|stream_options)(?![\w-])"
)
_PATH: Final = r"(?:[.\[]\w+\]?)*"
_WORDS: Final = r"(?:[^\w.;!?]+[\w-]+){0,4}?"  # few, and in the same sentence
# What the API says of a field that it does not take, and of a value that it does not take.
_REFUSED: Final = (
    r"(?:not (?:currently |yet )?(?:supported|permitted|allowed|available|recogni[sz]ed|enabled|implemented|accepted)|"
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|extra inputs|extra_forbidden|cannot find field)"
)
_WRONG_VALUE: Final = r"(?:input should be|must be one of|invalid value|only)"
_BEFORE: Final = (
    r"(?:unknown|unsupported|unrecogni[sz]ed|unexpected|invalid|extra) (?:request )?"
    r"(?:parameter|argument|field|property|key|keyword argument|name|input|value)(?:s|\(s\))?"
    r"(?: supplied)?(?: in [\w\[\].]+)?"
)
_NO_SUPPORT: Final = r"(?:not|n't|endpoints found that) support"
_FIELD_REFUSED: Final = (
    re.compile(rf"{_NAME}{_PATH}{_WORDS}[^\w.;!?]+(?:\w+[^\w.;!?]+)?{_REFUSED}", re.IGNORECASE),
    re.compile(rf"{_BEFORE}[^\w.;!?]{{1,6}}(?:[\w\[\]]+\.)*{_NAME}", re.IGNORECASE),
    re.compile(rf"{_NO_SUPPORT}{_WORDS}[^\w;!?]+(?:[\w\[\]]+\.)*{_NAME}", re.IGNORECASE),
)
_VALUE_REFUSED: Final = re.compile(rf"{_NAME}{_PATH}{_WORDS}[^\w.;!?]+{_WRONG_VALUE}\b", re.IGNORECASE)
_PARAM: Final = re.compile(rf"(?:^|[.\]]){_NAME}", re.IGNORECASE)
_VALUE_OF: Final = frozenset({"ttl", "prompt_cache_retention"})  # names whose value can be the matter
# Not the option is refused, but how we used it, or something of a tool's own that bears the same name.
_OUR_MISTAKE: Final = _any_of(
    r"maximum of \d",
    r"\bat most\b",
    r"\btoo many\b",
    r"must not come after",
    r"cannot be set for",
    r"should be set along with",
    r"schema for function",
    r"invalid schema",
)


def refused_option(message: str, param: object = None) -> CacheOption | None:
    """The cache option that a 400, 404 or 422 refuses, None when it refuses something else.

    `param`: the field that the API names apart from the message, where it does (OpenAI's `error.param`). A message that
    only mentions an option is no refusal of it, nor is one about how many markers there are or in which order.
    """
    if _OUR_MISTAKE.search(message):
        return None
    if isinstance(param, str) and (named := list(_PARAM.finditer(param))):
        return _option(named[-1]["name"])
    for pattern in _FIELD_REFUSED:
        if found := pattern.search(message):
            return _option(_deepest(found))
    found = _VALUE_REFUSED.search(message)
    if found is not None and (name := _deepest(found)).lower() in _VALUE_OF:
        return _option(name)
    return None


def _deepest(found: re.Match[str]) -> str:
    """The last option that was named up to the refusal, as in `cache_control.ephemeral.ttl`: the one that is meant."""
    path = re.compile(_PATH).match(found.string, found.end("name"))
    end = max(found.end(), path.end() if path else 0)
    names = re.finditer(_NAME, found.string[found.start("name") : end], re.IGNORECASE)
    return [name["name"] for name in names][-1]


def _option(name: str) -> CacheOption:
    return _OPTIONS[name.lower()]
