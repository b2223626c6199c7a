"""Characters that are split over tokens stay whole, wherever a reply is cut: in the events, in what is kept of it, and
in the next prompt.
"""

import json
from collections.abc import Sequence
from contextlib import aclosing

from llama_support import READ, block, call, plain, result, take_turn, user

from backends.base import Event, Request, StopReason, TextDelta, ToolCallDelta
from backends.llama.backend import LlamaBackend
from context.block import Layer, Opaque, Role, Text
from context.layers.history import reply_block
from context.prompt import Prompt

pytest_plugins = ["local_models"]

SAID = "汉字 😀 é 火锅 🚀"
BROKEN = "\N{REPLACEMENT CHARACTER}"


def parrot() -> Prompt:
    """A conversation in which even the smallest model says it once more."""
    said = block(Role.ASSISTANT, Text(SAID))
    return plain("Say it.").extend([said, user("Say it."), said, user("Say it.")])


def told(events: Sequence[Event]) -> str:
    """All text in the events, and no broken character in any of them."""
    assert all(BROKEN not in event.fragment for event in events if isinstance(event, ToolCallDelta))
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def assert_whole(backend: LlamaBackend, prompt: Prompt, said: str) -> None:
    """The tokens of the prompt are characters, and what was said is in it."""
    loaded = await backend.loaded()
    text = b"".join(map(loaded.weights.piece, loaded.prompts.request(prompt))).decode()  # raises for half a character
    assert BROKEN not in text
    last = text.rpartition("<|im_end|>\n<|im_start|>user")[0].rpartition("<|im_start|>")[2]
    assert said in last


async def test_a_reply_that_is_cancelled_after_any_event(backend: LlamaBackend) -> None:
    whole = await take_turn(backend, parrot())
    assert told(whole.events) == whole.reply.text == SAID
    assert sum(isinstance(event, TextDelta) for event in whole.events) < (whole.usage.output or 0)
    for count in range(1, len(whole.events)):
        events: list[Event] = []
        async with aclosing(backend.stream(Request(parrot(), max_output=48, temperature=0.0))) as stream:
            async for event in stream:
                events.append(event)
                if len(events) == count:
                    break
        draft = told(events)  # it is kept as it was told
        assert SAID.startswith(draft)
        kept = [reply_block([Text(draft)])] if draft else []
        after = parrot().extend([*kept, user("Go on.")])
        await assert_whole(backend, after, draft)
        if count % 5 == 0:
            assert (await take_turn(backend, after, max_output=1)).usage.output == 1


async def test_a_reply_that_ends_at_any_token(backend: LlamaBackend) -> None:
    output = (await take_turn(backend, parrot())).usage.output or 0
    asked = (await backend.loaded()).prompts.request(parrot())
    inside = 0
    for limit in range(1, output):
        turn = await take_turn(backend, parrot(), max_output=limit)
        assert turn.usage.output == limit
        assert turn.finished.stop is StopReason.MAX_OUTPUT
        said = turn.reply.text
        assert told(turn.events) == said
        assert SAID.startswith(said)
        after = parrot().extend([turn.reply, user("Go on.")])
        await assert_whole(backend, after, said.rstrip())  # a blank may be in the first token of the cut character
        (drawn,) = (len(part.data) // 4 for part in turn.finished.parts if isinstance(part, Opaque))
        inside += drawn < limit
        tokens = (await backend.loaded()).prompts.request(after)
        assert tokens[: len(asked)] == asked, "the next prompt extends the last one"
        turn = await take_turn(backend, after, max_output=1)
        assert turn.usage.cache_read is not None
        assert len(asked) + drawn - 1 <= turn.usage.cache_read <= len(asked) + drawn
    assert inside > 5, "some limits fall into the middle of a character"


async def test_a_call_that_ends_at_any_token(backend: LlamaBackend) -> None:
    """Its fragments are told while it is written; half of it is no call."""
    arguments = json.dumps({"path": SAID}, ensure_ascii=False, separators=(",", ":"))
    system = block(Role.SYSTEM, READ, Text("Call one tool."), layer=Layer.SYSTEM)
    calls = [[user("Read it."), call(str(number), "read", arguments), result(str(number), "x")] for number in (1, 2)]
    prompt = Prompt.empty().extend([system, *calls[0], *calls[1], user("Read it.")])
    whole = await take_turn(backend, prompt)
    assert [json.loads(one.arguments) for one in whole.reply.tool_calls] == [{"path": SAID}]
    inside = 0
    for limit in range(1, whole.usage.output or 0):
        turn = await take_turn(backend, prompt, max_output=limit)
        assert told(turn.events) == turn.reply.text == ""
        assert not turn.reply.tool_calls
        fragments = "".join(event.fragment for event in turn.events if isinstance(event, ToolCallDelta))
        assert whole.reply.tool_calls[0].arguments.startswith(fragments)
        after = prompt.extend([turn.reply, user("Go on.")])
        await assert_whole(backend, after, fragments.rstrip())
        (drawn,) = (len(part.data) // 4 for part in turn.finished.parts if isinstance(part, Opaque))
        inside += drawn < limit
    assert inside > 5
