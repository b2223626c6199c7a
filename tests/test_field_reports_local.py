"""Field reports of group G, each with its number: each kind of model on llama.cpp, templates, and saved states."""

import re
import tempfile
import threading
import tomllib
from array import array
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from compatible_support import HEAD as CLOUD_HEAD
from compatible_support import Talk, backend_for
from compatible_support import user as cloud_user
from emulator import Call, Emulator, Reply, Think, raw_prefix
from jinja2.sandbox import ImmutableSandboxedEnvironment
from llama_support import ByteTokenizer, Turn, block, brief, local_backend, project, result, take_turn, user
from llama_templates import QWEN3, TEMPLATES
from test_llama_kinds import assert_agrees, cold_logits, process, start, tokens

from backends.base import MemoryWireStore
from backends.llama import kv_store
from backends.llama.backend import LlamaBackend
from backends.llama.chat_template import find_junctions
from backends.llama.decoder import SNAPSHOTS, NativeDecoder
from backends.llama.kv_store import KvStore, Model
from backends.llama.loaded import KvOptions
from backends.llama.tuning import BATCH
from backends.llama.weights import Kind, Weights
from backends.llama.wire import PromptTokens, pack, unpack
from context.block import Block, Layer, Opaque, Role, Text, ToolCall
from context.layers.command import command_block
from context.prompt import Prompt

pytest_plugins = ["local_models", "tiny_models"]

ROOT = Path(__file__).parent.parent
HEAD, TAIL = tokens(300, 1), tokens(60, 2)
PROMPT = HEAD + TAIL
LONG = "Take care. " * 20 + "Read "


class Given:
    """How many tokens llama.cpp is given for prompts, batch by batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[int] = []
        evaluate = NativeDecoder.evaluate

        def counted(decoder: NativeDecoder, sequence: int, tokens: Sequence[int], position: int, rows: int = 1) -> None:
            self.batches.append(len(tokens))
            evaluate(decoder, sequence, tokens, position, rows)

        monkeypatch.setattr(NativeDecoder, "evaluate", counted)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    return Given(monkeypatch)


@pytest_asyncio.fixture(params=list(Kind), ids=[kind.name.lower() for kind in Kind])
async def backend(
    request: pytest.FixtureRequest, tiny_models: dict[Kind, Path], trials: Path
) -> AsyncIterator[LlamaBackend]:
    backend = local_backend(tiny_models[request.param], trials, context=4096, cache=KvOptions(lookup=False))
    yield backend
    await backend.aclose()


async def turn(backend: LlamaBackend, prompt: Prompt, given: Given) -> tuple[Turn, int]:
    """One call, and how many tokens of its prompt llama.cpp was given."""
    given.batches.clear()
    taken = await take_turn(backend, prompt, max_output=24)
    assert taken.usage.output is not None
    return taken, sum(given.batches) - max(0, taken.usage.output - 1)


# --- 95, 96, 98, 100, 103: what each kind of model can go on from, and what is said of it ---


async def test_what_is_reported_as_reused_is_what_was_not_evaluated(backend: LlamaBackend, given: Given) -> None:
    """Field reports 95 and 100: through a turn that goes on, one that changes the last words, and another session.

    How much of a prompt is like the last one does not count; a full prefill is told as one.
    """
    first = brief(LONG + "a.py")
    one, evaluated = await turn(backend, first, given)
    assert (one.usage.fresh, one.usage.cache_read) == (evaluated, 0)
    assert one.prefill[0].reused == 0
    size = evaluated

    following = first.extend([one.reply, command_block("And b.py?")])
    two, evaluated = await turn(backend, following, given)
    assert (two.usage.fresh, two.usage.cache_read) == (evaluated, two.prefill[-1].total - evaluated)
    assert (two.usage.cache_read or 0) >= size, "a state is kept at the end of a turn, whatever the kind"

    changed = brief(LONG + "b.py")
    three, evaluated = await turn(backend, changed, given)
    assert (three.usage.fresh, three.usage.cache_read) == (evaluated, three.prefill[0].reused)
    loaded = await backend.loaded()
    if loaded.weights.kind.rewinds:
        assert (three.usage.cache_read or 0) >= size - len(LONG) // 2
    else:
        assert three.usage.cache_read == loaded.prompts.marks(changed)[-1]

    other = Prompt.empty().extend([block(Role.SYSTEM, Text("Be brief."), layer=Layer.SYSTEM), command_block("Hm?")])
    four, evaluated = await turn(backend, other, given)
    assert four.usage.fresh == evaluated
    assert four.usage.cache_read == four.prefill[0].reused


@pytest.mark.parametrize("marks", [(), (len(HEAD),)], ids=["no message ends before", "a message ends before"])
def test_one_token_back(weights: Weights, marks: tuple[int, ...]) -> None:
    """Field report 96: an edit of the token before the last is N tokens reused with attention, else the last mark."""
    edited = PROMPT[:-2] + array("i", [PROMPT[-2] ^ 1]) + PROMPT[-1:]
    with process(weights) as begun:
        begun.prefill(PROMPT, marks)
        done = begun.prefill(edited, marks)
        assert done.reused == (len(PROMPT) - 2 if weights.kind.rewinds else max(marks, default=0))
        assert_agrees(begun.decoder.logits(), cold_logits(weights, edited))


@pytest.mark.parametrize("at", [200, len(HEAD)])
def test_nothing_behind_an_insertion_is_reused(weights: Weights, at: int) -> None:
    """Field report 98: what was computed at one place is never moved to another."""
    longer = PROMPT[:at] + tokens(7, 9) + PROMPT[at:]
    with process(weights) as begun:
        begun.prefill(PROMPT, [len(HEAD)])
        done = begun.prefill(longer, [len(HEAD)])
        assert done.reused == (at if weights.kind.rewinds or at == len(HEAD) else 0)
        assert_agrees(begun.decoder.logits(), cold_logits(weights, longer))


def test_a_changed_history_never_shows_what_was_there(weights: Weights) -> None:
    """Field report 103: a part of what a state stands for is of no use; it is dropped, and the answer is right."""
    with process(weights) as begun:
        begun.prefill(PROMPT)
        for at in (0, 100, 299, 359):
            changed = PROMPT[:at] + tokens(40, 20 + at)
            begun.prefill(changed)
            assert_agrees(begun.decoder.logits(), cold_logits(weights, changed))
            said = begun.likeliest(5)
            assert_agrees(begun.decoder.logits(), cold_logits(weights, changed + said[:-1]))


# --- 101, 106, 113: states that are kept ---


def test_states_in_memory_never_outgrow_what_was_given_to_them(weights: Weights) -> None:
    """Field report 101: fifty forks of one prompt. What has to go goes before its room is used."""
    with process(weights) as begun:
        room = begun.decoder.cells
        for salt in range(50):
            prompt = HEAD + tokens(120, 100 + salt)
            begun.prefill(prompt, [len(HEAD)])
            used = {number: begun.decoder.held(number)[1] + 1 for number in range(begun.decoder.sequences)}
            assert begun.engine.sequences <= begun.decoder.sequences
            if weights.kind.rewinds:  # the head is there once
                own = sum(max(0, length - len(HEAD)) for length in used.values())
                assert own + len(HEAD) <= room
            else:
                assert sum(length > 0 for length in used.values()) <= SNAPSHOTS
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt))


def test_a_state_that_is_too_large_costs_nothing_that_was_kept(tmp_path: Path) -> None:
    """Field report 101: its size is looked at first."""
    store = KvStore(tmp_path, Model("m", {}), 10_000)
    store.keep(tokens(100, 1), 0, bytes(4_000))
    store.flush()
    store.keep(tokens(100, 2), 0, bytes(20_000))
    store.flush()
    assert store.find(tokens(100, 1), parts=False).length == 100
    assert store.find(tokens(100, 2), parts=False).length == 0
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 10_000
    store.close()


def test_a_state_is_saved_loaded_and_gone_on_from_twenty_times(weights: Weights, tmp_path: Path) -> None:
    """Field report 106: each time in a new process."""
    prompt = tokens(120, 1)
    for number in range(20):
        begun = start(weights, tmp_path)
        done = begun.prefill(prompt, [len(prompt) - 1])
        assert (done.restored > 0) == (number > 0)
        prompt += begun.likeliest(2) + tokens(33, number)
        begun.prefill(prompt, [len(prompt) - 1])
        begun.engine.keep()
        begun.end()
    with process(weights, tmp_path) as begun:
        begun.prefill(prompt)
        assert_agrees(begun.decoder.logits(), cold_logits(weights, prompt))


def test_a_slow_disk_holds_nothing_up_and_can_be_left(
    loaded: dict[Kind, Weights], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 113: while a state is being written the model answers, and leaving does not wait for the rest."""
    reached, go_on = threading.Event(), threading.Event()
    make = tempfile.mkstemp

    def slow(*arguments: Any, **named: Any) -> tuple[int, str]:
        reached.set()
        assert go_on.wait(30)
        return make(*arguments, **named)

    monkeypatch.setattr(kv_store.tempfile, "mkstemp", slow)
    monkeypatch.setattr(kv_store, "_PIECE", 1_000)
    monkeypatch.setattr(kv_store, "_CLOSE_S", 0.0)
    weights = loaded[Kind.ATTENTION]
    begun = start(weights, tmp_path)
    begun.prefill(PROMPT)
    begun.engine.keep()
    assert reached.wait(30)
    assert begun.prefill(PROMPT + TAIL).evaluated == len(TAIL)
    assert len(begun.likeliest(5)) == 5
    leaving = threading.Thread(target=begun.end)
    leaving.start()
    assert begun.store is not None
    assert begun.store._stop.wait(30), "it does not wait for the disk for ever"
    go_on.set()
    leaving.join(30)
    assert [path.name for path in tmp_path.rglob("*") if path.suffix == ".kv" or "tmp" in path.name] == []
    with process(weights, tmp_path) as begun:
        assert begun.prefill(PROMPT).reused == 0


# --- 105: how fast a prompt is read ---


def test_a_prompt_is_read_in_whole_batches(weights: Weights, given: Given) -> None:
    """Field report 105: a prefill that falls back to small steps takes many times as long."""
    with process(weights) as begun:
        begun.prefill(tokens(800, 5))
    whole = 799 // BATCH
    assert given.batches[:whole] == [BATCH] * whole
    assert sum(given.batches[whole:]) == 800 - whole * BATCH
    assert len(given.batches) <= whole + 2


def test_the_library_cannot_change_under_a_release() -> None:
    """Field report 105: another minor version is another engine; it comes with a measurement, not by itself."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["local"]
    (wanted,) = [line for line in extras if line.startswith("llama-cpp-python")]
    assert re.fullmatch(r"llama-cpp-python>=0\.3\.\d+,<0\.4", wanted)


# --- 108, 110, 111: the next prompt begins with what is in the cache ---


async def test_the_next_prompt_begins_with_the_tokens_in_the_cache(backend: LlamaBackend) -> None:
    """Field report 108: what the model said is sent back as it was drawn, to the last newline."""
    prompt = brief("Read a.py")
    for command in ("And b.py?", "And then?\n", "  "):
        taken = await take_turn(backend, prompt, max_output=24)
        loaded = await backend.loaded()
        asked = loaded.prompts.request(prompt)
        (drawn,) = [unpack(part.data) for part in taken.finished.parts if isinstance(part, Opaque)]
        prompt = prompt.extend([taken.reply, command_block(command + "Go on.")])
        after = loaded.prompts.request(prompt)
        held = loaded.engine._held.tokens
        assert after[: len(asked) + len(drawn)] == asked + drawn
        assert after[: len(held)] == held
        assert len(held) >= len(asked) + len(drawn) - 1


# Leaves out the reasoning of all that was said before the last command, unless it is told to keep it.
PRESERVING = QWEN3.replace(
    "{%- if message.role == 'assistant' %}",
    "{%- if message.role == 'assistant' and not (preserve_thinking is defined and preserve_thinking) %}",
)
THOUGHT = 'read","args":{"path":"<think>\\nHm.\\n</think>\\n\\na.py"}}'


@pytest.mark.parametrize("source", [*TEMPLATES.values(), PRESERVING], ids=[*TEMPLATES, "preserving"])
def test_a_new_command_takes_nothing_from_the_turn_before(source: str) -> None:
    """Field reports 110 and 111: with thinking in the replies, through a tool loop and into the next command."""
    tokenizer = ByteTokenizer()
    junctions = find_junctions(source, "<s>", "</s>", "model.gguf")
    prompts = PromptTokens(tokenizer, junctions, MemoryWireStore(), "local:test")

    def said(text: str, *parts: ToolCall) -> Block:
        return block(Role.ASSISTANT, *parts, Opaque("local:test", pack(tokenizer.tokenize(text))))

    system = block(Role.SYSTEM, Text("You code."), layer=Layer.SYSTEM)
    prompt = Prompt.empty().extend([system, project("tree"), user("first")])
    answer = 'answer","args":{"text":"</think>\\n\\nDone. "}}\n'
    before = array("i")
    for number in range(2):
        for text, following in (
            (THOUGHT, result("1", "x = 1")),
            (THOUGHT, result("2", "y = 2\n")),
            (answer, user(f"command {number}")),
        ):
            asked = prompts.request(prompt)
            assert asked[: len(before)] == before
            before = asked + tokenizer.tokenize(text)
            prompt = prompt.extend([said(text), following])
    assert prompts.request(prompt)[: len(before)] == before


@pytest.mark.parametrize("flavour", ["llama-server", "vllm"])
async def test_a_server_is_told_to_keep_the_reasoning_of_earlier_turns(emulator: Emulator, flavour: str) -> None:
    """Field reports 110 and 111: and each body extends the last, with the reasoning in it."""
    emulator.play(
        [
            Reply.of(Think("I read it."), Call("read", {"path": "a"})),
            Reply.of(Think("Now I know."), "It is 1."),
            Reply.of("Yes."),
        ]
    )
    talk = Talk(backend_for(emulator, flavour), CLOUD_HEAD)
    await talk.turn(cloud_user("What is in a?"))
    await talk.turn(talk.answers())
    await talk.turn(cloud_user("Sure?"))
    await talk.backend.aclose()
    for earlier, later in pairwise([raw_prefix(request.raw) for request in emulator.requests]):
        assert later.startswith(earlier)
    for body in emulator.bodies:
        assert body["chat_template_kwargs"] == {"preserve_thinking": True}
    told = str(emulator.bodies[-1]["messages"])
    assert "I read it." in told
    assert "Now I know." in told


def test_the_template_above_drops_reasoning_unless_it_is_told_to_keep_it() -> None:
    """Else the tests of field reports 110 and 111 would show nothing."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nDone."},
        {"role": "user", "content": "two"},
    ]
    template = environment.from_string(PRESERVING)
    assert "Hm." not in template.render(messages=messages)
    assert "Hm." in template.render(messages=messages, preserve_thinking=True)
