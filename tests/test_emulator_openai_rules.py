"""What the emulated Responses API refuses, with the parameter and the code that the SDK hands on."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from emulator import Emulator, Reply
from openai import AsyncOpenAI

CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
USER = {"role": "user", "content": "Go on."}
EXPLICIT = {"mode": "explicit"}


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator(lambda _: Reply.of("Yes.")) as running:
        yield running


@pytest.fixture
async def client(server: Emulator) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as sdk:
        yield sdk


async def create(client: AsyncOpenAI, **body: Any) -> Any:
    """POST as it is, so that nothing of the SDK's own typing stands in the way."""
    whole = {"model": "gpt-6.2-sol", "input": [USER], "store": False, **body}
    return await client.post("/responses", body=whole, cast_to=dict)


def items(*given: Any) -> dict[str, Any]:
    return {"input": list(given)}


def part(role: str = "user", **content: Any) -> dict[str, Any]:
    return items({"role": role, "content": [content]})


REFUSED: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("unknown parameter", {"max_tokens": 5}, "max_tokens", "unknown_parameter"),
    ("unknown model", {"model": "gpt-9"}, "model", "model_not_found"),
    ("no input", {"input": []}, "input", "missing_required_parameter"),
    ("server state", {"previous_response_id": "resp_9"}, "previous_response_id", "previous_response_not_found"),
    ("temperature", {"temperature": 1}, "temperature", "unsupported_parameter"),
    ("temperature, older", {"model": "gpt-5.5", "temperature": 0}, "temperature", "unsupported_parameter"),
    ("top_p", {"top_p": 0.9}, "top_p", "unsupported_parameter"),
    ("effort none", {"reasoning": {"effort": "none"}}, "reasoning.effort", "unsupported_value"),
    ("effort minimal", {"reasoning": {"effort": "minimal"}}, "reasoning.effort", "unsupported_value"),
    ("effort unknown", {"model": "gpt-5.5", "reasoning": {"effort": "huge"}}, "reasoning.effort", "unsupported_value"),
    ("output limit", {"max_output_tokens": 1}, "max_output_tokens", "integer_below_min_value"),
    ("output limit", {"max_output_tokens": 128_001}, "max_output_tokens", "integer_above_max_value"),
    ("include", {"include": ["usage"]}, "include[0]", "invalid_value"),
    ("stream options", {"stream_options": {}}, "stream_options", "invalid_parameter"),
    (
        "Chat's stream option",
        {"stream": True, "stream_options": {"include_usage": True}},
        "stream_options.include_usage",
        "unknown_parameter",
    ),
    (
        "cache options of an older model",
        {"model": "gpt-5.5", "prompt_cache_options": {"mode": "implicit"}},
        "prompt_cache_options",
        "unsupported_parameter",
    ),
    (
        "breakpoint of an older model",
        {"model": "gpt-5.5", **part(type="input_text", text="x", prompt_cache_breakpoint=EXPLICIT)},
        "input[0].content[0].prompt_cache_breakpoint",
        "unsupported_parameter",
    ),
    ("cache ttl", {"prompt_cache_options": {"ttl": "1h"}}, "prompt_cache_options.ttl", "invalid_value"),
    ("cache mode", {"prompt_cache_options": {"mode": "auto"}}, "prompt_cache_options.mode", "invalid_value"),
    ("cache option", {"prompt_cache_options": {"size": 1}}, "prompt_cache_options.size", "unknown_parameter"),
    ("retention", {"prompt_cache_retention": "in_memory"}, "prompt_cache_retention", "invalid_value"),
    ("long cache key", {"prompt_cache_key": "k" * 65}, "prompt_cache_key", "string_above_max_length"),
    (
        "breakpoint ttl",
        part(type="input_text", text="x", prompt_cache_breakpoint={"mode": "explicit", "ttl": "5m"}),
        "input[0].content[0].prompt_cache_breakpoint.ttl",
        "invalid_value",
    ),
    (
        "breakpoint mode",
        part(type="input_text", text="x", prompt_cache_breakpoint={"ttl": "30m"}),
        "input[0].content[0].prompt_cache_breakpoint.mode",
        "invalid_value",
    ),
    (
        "Anthropic's marker",
        part(type="input_text", text="x", cache_control={}),
        "input[0].content[0].cache_control",
        None,
    ),
    ("Chat's part", part(type="text", text="x"), "input[0].content[0]", "invalid_value"),
    ("input in an answer", part("assistant", type="input_text", text="x"), "input[0].content[0]", "invalid_value"),
    ("role", part("tool", type="input_text", text="x"), "input[0].role", "invalid_value"),
    ("item type", items({"type": "tool_result"}), "input[0]", "invalid_value"),
    ("item field", items({**USER, "cache": 1}), "input[0].cache", "unknown_parameter"),
    ("Chat's tool", {"tools": [{"type": "function", "function": {"name": "read"}}]}, "tools[0].name", None),
    ("tool name", {"tools": [{"type": "function", "name": "read file"}]}, "tools[0].name", "invalid_value"),
    ("tool choice", {"tool_choice": {"type": "function", "name": "x"}}, "tool_choice", None),
    ("result without a call", items(USER, RESULT), "input", None),
    ("result before its call", items(USER, RESULT, CALL), "input", None),
    ("two results of a call", items(USER, CALL, RESULT, RESULT), "input", None),
    ("call without a result", items(USER, CALL), "input", None),
    ("call without arguments", items({**CALL, "arguments": {}}), "input[0].arguments", "missing_required_parameter"),
    ("reasoning alone", items(USER, REASONING, USER), "input", None),
    ("altered reasoning", items(USER, {**REASONING, "encrypted_content": "gAAAAAnonsense"}, MESSAGE), "input", None),
    ("too long", {"input": "word " * 922_001}, "input", "context_length_exceeded"),
]


@pytest.mark.parametrize(("body", "param", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_what_is_refused_names_the_parameter(
    client: AsyncOpenAI, body: dict[str, Any], param: str | None, code: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await create(client, **body)
    assert refused.value.param == param
    assert code is None or refused.value.code == code
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [
        {"reasoning": {"effort": "xhigh", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
        {"model": "gpt-5.5", "temperature": 1, "reasoning": {"effort": "minimal"}},
        {"prompt_cache_options": {"mode": "explicit", "ttl": "12h", "comparison_response_id": None}},
        {"prompt_cache_retention": "24h", "prompt_cache_key": "k" * 64},
        {"input": "Go on.", "max_output_tokens": 16},
        items(USER, REASONING, CALL, RESULT, USER),
        items(USER, CALL, USER, RESULT),
        items(USER, {**MESSAGE, "content": [{**MESSAGE["content"][0], "prompt_cache_breakpoint": EXPLICIT}]}, USER),  # type: ignore[dict-item]
        items({**USER, "role": "developer"}, USER),
    ],
)
async def test_what_is_taken(client: AsyncOpenAI, body: dict[str, Any]) -> None:
    assert (await create(client, **body))["status"] == "completed"


async def test_reasoning_without_its_content_is_not_found(client: AsyncOpenAI) -> None:
    """`store: false` keeps nothing: an item by its id alone is a 404."""
    bare = {key: value for key, value in REASONING.items() if key != "encrypted_content"}
    with pytest.raises(openai.NotFoundError, match="not persisted"):
        await create(client, **items(USER, bare, MESSAGE))


async def test_no_key_no_answer(server: Emulator) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(
                model="gpt-6.2-sol", input="x", extra_headers={"Authorization": openai.Omit()}
            )


async def test_nothing_that_is_refused_is_billed(server: Emulator, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        await create(client, temperature=1)
    await create(client)
    assert server.bills[0] is None
    assert server.bills[1] is not None
