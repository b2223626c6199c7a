"""The one table of errors: every provider's wording means what it says, and nothing else."""

from datetime import UTC, datetime

import httpx2
import pytest

from backends.base import CacheOption, ErrorKind
from backends.error_words import named_window
from backends.errors import Endpoint, Fault, api_error, from_response, refused_option, retry_after

K = ErrorKind
C = CacheOption
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def endpoint(base_url: str = "http://localhost:1234/v1", **changes: object) -> Endpoint:
    options: dict[str, object] = {
        "base_url": base_url,
        "url_from": "endpoints.work.url",
        "serves": "the Chat Completions API",
        "model": "work/some-model",
        "official": False,
        "key_from": "WORK_KEY",
        "secrets": ("top-secret",),
        "now": lambda: NOW,
    } | changes
    return Endpoint(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 213462 tokens > 200000 maximum",  # Anthropic
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",  # Anthropic, older models
        "Input is too long for requested model.",  # Bedrock
        "Your input exceeds the context window of this model. Please adjust your input and try again.",  # OpenAI
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.",  # OpenAI
        "This model's maximum context length is 131072 tokens. However, you requested 131100 tokens (131000 in the "
        "messages, 100 in the completion). Please reduce the length of the messages or completion.",  # DeepSeek
        "This endpoint's maximum context length is 163840 tokens. However, you requested about 170000 tokens (...).",
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192 "
        "tokens and your request has 6000 input tokens",  # vLLM
        "The decoder prompt (length 10127) is longer than the maximum model length of 8192.",  # vLLM
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",  # SGLang
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",  # SGLang
        "request (25837 tokens) exceeds the available context size (25088 tokens), try increasing it",  # llama-server
        "the request exceeds the available context size. try increasing the context size",  # llama-server, older
        "Requested tokens (2285) exceed context window of 2048",  # llama-cpp-python
        # LM Studio (field report 81: the first of these was taken for some other failure)
        "Input does not fit in context length. The input has 31430 tokens, but the context length only supports 30000.",
        "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context "
        "length of only 7866 tokens, which is not enough.",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
        "Context size has been exceeded.",
        "the input length exceeds the context length",  # Ollama
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",  # Gemini
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",  # xAI
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",  # Groq
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "Your request exceeded model token limit: 262144 (requested: 265000)",  # Moonshot
        "prompt token count of 140000 exceeds the limit of 128000",  # GitHub Copilot
        "invalid params, context window exceeds limit (2013)",  # MiniMax
        "Prompt exceeds max length",  # Z.ai
        "Range of input length should be [1, 129024]",  # Qwen
        "litellm.ContextWindowExceededError: the prompt exceeds the model's context window",  # LiteLLM
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",  # Cohere
    ],
)
@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (500, None), (None, None)])
def test_every_wording_of_a_prompt_that_is_too_long(message: str, status: int | None, kind: str | None) -> None:
    """Field report 81. Some servers say it with a 500, LM Studio in a stream of status 200."""
    error = api_error(Fault(message, status, type=kind), endpoint())
    assert (error.kind, error.retriable, error.option) == (K.OVERFLOW, False, None)
    assert "Start a new session" in str(error)


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error", "request_too_large"])
def test_a_code_says_that_the_prompt_is_too_long(code: str) -> None:
    assert api_error(Fault("No.", 400, code=code), endpoint()).kind is K.OVERFLOW
    assert api_error(Fault("No.", 500, type=code), endpoint()).kind is K.OVERFLOW


QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("status", "code", "message", "kind", "retriable"),
    [
        # Limits on something else than the prompt
        (400, None, "max_tokens: 200000 > 128000, the maximum number of output tokens", K.INVALID, False),
        (400, None, "max_tokens is too large: 200000. It supports at most 128000 output tokens", K.INVALID, False),
        (429, None, "Too many tokens, please wait before trying again.", K.RATE_LIMIT, True),  # Bedrock
        (429, None, "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000", K.RATE_LIMIT, True),
        # A request that is over the limit of a minute can never pass (OpenAI, Groq)
        (429, "rate_limit_exceeded", "Request too large for x on tokens per min (TPM): Limit 3", K.OVERFLOW, False),
        (413, "rate_limit_exceeded", "Request too large for x on tokens per minute (TPM): Limit 3", K.OVERFLOW, False),
        # Money
        (429, "insufficient_quota", QUOTA, K.BILLING, False),  # OpenAI
        (429, None, QUOTA, K.BILLING, False),
        (402, None, "Insufficient Balance", K.BILLING, False),  # DeepSeek
        (402, None, "This request requires more credits, or fewer max_tokens.", K.BILLING, False),  # OpenRouter
        (403, None, "Your team has used all available credits or reached its spending limit", K.BILLING, False),  # xAI
        (429, "exceeded_current_quota_error", "no", K.BILLING, False),  # Moonshot
        # Gemini says the same of a limit per minute, with the time to wait in the sentence
        (429, None, f"{QUOTA} Please retry in 34.07s.", K.RATE_LIMIT, True),
        # OpenAI's types are vague where the status is not
        (401, "invalid_request_error", "Incorrect API key provided", K.AUTH, False),
        (404, "invalid_request_error", "The model does not exist", K.NOT_FOUND, False),
        (503, "slow_down", "Slow down", K.OVERLOADED, True),
        (429, "engine_overloaded_error", "Overloaded", K.OVERLOADED, True),  # Moonshot
        (None, "server_error", "oops", K.SERVER, True),
        (None, "bio_policy", "No.", K.INVALID, False),
        (None, "code_of_tomorrow", "?", K.SERVER, True),
    ],
)
def test_kind_and_retry(status: int | None, code: str | None, message: str, kind: ErrorKind, retriable: bool) -> None:
    for fault in (Fault(message, status, code=code), Fault(message, status, type=code)):
        error = api_error(fault, endpoint())
        assert (error.kind, error.retriable) == (kind, retriable)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 7.66s. Visit", 7.66),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 1m30.5s.", 90.5),
        ("Please try again in 6m0s.", 360),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Please try again in a while.", None),
        ("Please try again.", None),
    ],
)
def test_a_time_to_wait_that_only_the_sentence_tells(message: str, seconds: float | None) -> None:
    assert api_error(Fault(message, 429), endpoint()).retry_after == seconds
    assert api_error(Fault(message, 429), endpoint(), {"retry-after": "2"}).retry_after == 2


def test_retry_headers() -> None:
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}, NOW) == 1.5
    assert retry_after({"retry-after": "9"}, NOW) == 9
    assert retry_after({"retry-after": "Tue, 01 Dec 2026 12:00:30 GMT"}, NOW) == 30
    assert retry_after({"retry-after": "later"}, NOW) is None


@pytest.mark.parametrize(
    ("message", "param", "option"),
    [
        # Field report 44, and its relatives on Vertex and Bedrock
        ("tools.20.custom.cache_control.ephemeral.ttl: Extra inputs are not permitted", None, C.LONG_TTL),
        ("system.0.cache_control.ttl: Input should be '5m'", None, C.LONG_TTL),
        ("cache_control with ttl 1h is not available on this platform", None, C.LONG_TTL),
        ("*.cache_control: Extra inputs are not permitted", None, C.MARKERS),
        ("Unknown parameter in system[1]: 'cachePoint', must be one of: text, guardContent.", None, C.MARKERS),
        ("diagnostics: Extra inputs are not permitted", None, C.DIAGNOSTICS),
        ("unknown field `diagnostics`, expected one of `model`, `messages`", None, C.DIAGNOSTICS),
        # OpenAI and what speaks its APIs
        ("Unsupported parameter: prompt_cache_retention", None, C.LONG_TTL),
        ("prompt_cache_retention is not supported with gpt-5.6-sol; use prompt_cache_options.ttl", None, C.LONG_TTL),
        ("Invalid value: '12h'. Supported values are: '30m'.", "prompt_cache_options.ttl", C.LONG_TTL),
        ("Unknown parameter: 'prompt_cache_options'.", "prompt_cache_options", C.MODE),
        ("This model does not support prompt_cache_options.", None, C.MODE),
        ("Unknown parameter: 'prompt_cache_options.comparison_response_id'.", None, C.DIAGNOSTICS),
        ("Unknown parameter: 'input[0].content[0].prompt_cache_breakpoint'.", None, C.MARKERS),
        ("Unknown parameter.", "input[0].content[0].prompt_cache_breakpoint", C.MARKERS),
        ("Validation: Unsupported parameter(s): `prompt_cache_key`", None, C.KEY),  # NVIDIA
        ("Unrecognized request argument supplied: prompt_cache_key", None, C.KEY),
        ('json: unknown field "prompt_cache_key"', None, C.KEY),
        ("Additional properties are not allowed ('prompt_cache_key' was unexpected)", None, C.KEY),
        (
            "'messages.0' : for 'role:system' [('messages.0' : property 'cache_control' is unsupported)]",
            None,
            C.MARKERS,
        ),
        ("Unknown name \"cache_control\" at 'contents[0]': Cannot find field.", None, C.MARKERS),  # Gemini
        ("No endpoints found that support cache_control", None, C.MARKERS),  # OpenRouter
        ("Extra parameters ['stream_options'] are not allowed when extra-parameters is not set", None, C.USAGE),
        (
            "[{'type': 'extra_forbidden', 'loc': ['body', 'stream_options', 'include_usage'], 'msg': 'Extra inputs are "
            "not permitted', 'input': True}]",  # Mistral
            None,
            C.USAGE,
        ),
        # Our own mistakes in using an option
        ("A maximum of 4 blocks with cache_control may be provided. Found 5.", None, None),
        (
            "messages.3.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
            "cache_control block.",
            None,
            None,
        ),
        ("messages.0.content.0.text: cache_control cannot be set for empty text blocks", None, None),
        ("stream_options should be set along with stream = true", None, None),
        # Something else is refused, and an option is only mentioned
        ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature", None),
        ("The request with cache_control was read; image inputs are not supported by this model.", None, None),
        ("prompt_cache_key was accepted. tool_choice is not supported", None, None),
        ("Missing required parameter: 'input[2].call_id'. See also prompt_cache_key.", "input[2].call_id", None),
        (
            "Invalid schema for function 'edit': In context=('properties', 'ttl'), 'format' is not permitted.",
            "tools[0].function.parameters",
            None,
        ),
        ("messages.1: bad", None, None),
        ("", None, None),
    ],
)
@pytest.mark.parametrize("status", [400, 404, 422])
def test_which_cache_option_is_refused(
    message: str, param: str | None, option: CacheOption | None, status: int
) -> None:
    assert refused_option(message, param) is option
    error = api_error(Fault(message, status, param=param), endpoint())
    assert (error.option, error.retriable) == (option, False)
    if option is not None:
        assert error.kind is K.INVALID


def test_the_same_request_with_a_refused_option_is_not_tried_again() -> None:
    fault = Fault("Unknown parameter: 'prompt_cache_key'.", 400)
    assert not api_error(fault, endpoint(), {"x-should-retry": "true"}).retriable


@pytest.mark.parametrize("status", [401, 403, 429, 500, 529])
def test_another_failure_that_mentions_an_option_is_no_refusal_of_it(status: int) -> None:
    fault = Fault("prompt_cache_key is not supported", status, param="prompt_cache_key")
    assert api_error(fault, endpoint()).option is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "bad field", "type": "BadRequestError", "code": 400}}', "bad field"),  # vLLM
        ('{"object": "error", "message": "bad field", "code": 400}', "bad field"),  # SGLang, older vLLM
        ('{"error": "bad field"}', "bad field"),  # Ollama
        ('{"detail": "bad field"}', "bad field"),  # FastAPI
        ('{"detail": [{"loc": ["body"], "msg": "bad field"}]}', "bad field"),
        ('[{"error": {"code": 400, "message": "bad field", "status": "INVALID_ARGUMENT"}}]', "bad field"),  # Gemini
        (
            '{"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "bad field"}}}',
            "Provider returned error: bad field",  # OpenRouter
        ),
    ],
)
def test_errors_in_every_form(body: str, message: str) -> None:
    error = from_response(httpx2.Response(400, text=body), endpoint())
    assert error.kind is K.INVALID
    assert message in str(error)


def test_the_error_behind_a_router_is_understood() -> None:
    body = '{"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "prompt is too long"}}}'
    assert from_response(httpx2.Response(400, text=body), endpoint()).kind is K.OVERFLOW


def test_a_status_that_only_the_event_in_a_stream_tells() -> None:
    body = {"error": {"code": 429, "message": "slow"}}
    assert api_error(Fault.read(body), endpoint()).kind is K.RATE_LIMIT
    assert api_error(Fault.read({"error": {"code": 502, "message": "bad gateway"}}), endpoint()).kind is K.SERVER


def test_no_message_holds_a_key() -> None:
    told = (
        "Incorrect API key: top-secret, sk-proj-0123456789abcdefghij, gsk_0123456789abcdefghij, a task-based-approach"
    )
    text = str(api_error(Fault(told, 401), endpoint()))
    assert "0123456789" not in text
    assert "top-secret" not in text
    assert "a task-based-approach" in text
    assert "WORK_KEY" in text


@pytest.mark.parametrize(
    ("url", "address", "shown"),
    [
        ("https://api.openai.com/v1", "api.openai.com", "https://api.openai.com/v1"),
        ("http://localhost:8080/v1?key=x", "localhost:8080", "http://localhost:8080/v1"),
        ("http://me:pw@[::1]:8080", "[::1]:8080", "http://[::1]:8080"),
        ("http://host:99999", "", ""),
        ("nonsense", "", "://nonsense"),
    ],
)
def test_two_servers_on_one_host_are_two_endpoints(url: str, address: str, shown: str) -> None:
    assert endpoint(url).address == address
    assert endpoint(url).shown_url == shown


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", 200_000),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", 200_000),
        ("This model's maximum context length is 8,192 tokens. However, your messages resulted in 8545 tokens.", 8_192),
        (
            "This endpoint's maximum context length is 163840 tokens. However, you requested about 170000 tokens",
            163_840,
        ),
        ("The decoder prompt (length 10127) is longer than the maximum model length of 8192.", 8_192),
        ("The input (61709 tokens) is longer than the model's context length (40960 tokens).", 40_960),
        ("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).", 59_862),
        ("request (25837 tokens) exceeds the available context size (25088 tokens), try increasing it", 25_088),
        ("The input has 31430 tokens, but the context length only supports 30000.", 30_000),
        (
            "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with "
            "context length of only 7866 tokens, which is not enough.",
            7_866,
        ),
        ("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7_424),
        ("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
        ("Input is too long for requested model.", None),
        ("Context size has been exceeded.", None),
        ("Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 50000", None),
    ],
)
def test_the_window_that_a_refusal_names_is_known(message: str, window: int | None) -> None:
    assert named_window(message) == window


def test_a_placeholder_for_a_key_is_not_taken_out_of_every_word() -> None:
    assert "too long" in endpoint(secrets=("o",)).quote("prompt is too long")
