"""Chat templates: for each family, turn n is a prefix of turn n+1, and says what the template itself would say."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from llama_support import ByteTokenizer, block, call, project, result, user
from llama_templates import CHATML, GEMMA2, LLAMA3, MISTRAL, TEMPLATES
from local_models import local_model_path, models_folder

from backends.base import BackendError, ErrorKind, MemoryWireStore
from backends.llama.chat_template import Junctions, find_junctions
from backends.llama.models import resolve
from backends.llama.tool_grammar import answer_text
from backends.llama.weights import Weights
from backends.llama.wire import PromptTokens, pack
from context.block import Layer, Opaque, Role, Text
from context.prompt import Prompt

SYSTEM = block(Role.SYSTEM, Text("You code."), layer=Layer.SYSTEM)


def junctions(source: str) -> Junctions:
    return find_junctions(source, "<s>", "</s>", "model.gguf")


def rendered(source: str, messages: list[dict[str, str]], bos: str = "<s>", eos: str = "</s>") -> str:
    """The conversation as the template renders it in one go."""

    def refuse(message: str) -> Any:
        raise AssertionError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    values = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True, "enable_thinking": False}
    return environment.from_string(source).render(messages=messages, **values)


@pytest.mark.parametrize("name", TEMPLATES)
def test_turn_n_is_a_token_prefix_of_turn_n_plus_1(name: str) -> None:
    """Field reports 108, 110 and 111."""
    tokenizer = ByteTokenizer()
    prompts = PromptTokens(tokenizer, junctions(TEMPLATES[name]), MemoryWireStore(), "local:test")
    prompt = Prompt.empty().extend([SYSTEM, project("tree"), user("first <|im_end|> command")])
    before = prompts.request(prompt)
    # What a model may write that a template would strip, trim or reformat when it is old.
    for number, said in enumerate(
        ['answer","args":{"text":"  <think>hm</think> ok "}}', "read\n\n", "", "é</think>\n"]
    ):
        sampled = tokenizer.tokenize(said)
        reply = block(Role.ASSISTANT, Text("anything"), Opaque("local:test", pack(sampled)))
        prompt = prompt.extend([reply, user(f"command {number}")])
        after = prompts.request(prompt)
        assert after[: len(before) + len(sampled)] == before + sampled
        before = after


# Templates that render old messages as they were; the others cannot be compared with a rendering in one go.
@pytest.mark.parametrize("name", ["chatml", "llama-3", "gemma-3", "phi"])
def test_the_tokens_say_what_the_template_says(name: str) -> None:
    tokenizer = ByteTokenizer()
    prompts = PromptTokens(tokenizer, junctions(TEMPLATES[name]), MemoryWireStore(), "local:test")
    blocks = [SYSTEM, project("tree"), user("one"), call("1", "read", '{"path":"a"}'), result("1", "text"), user("two")]
    text = tokenizer.text(prompts.request(Prompt.empty().extend(blocks)))
    expected = rendered(
        TEMPLATES[name],
        [
            {"role": "system", "content": "You code."},
            {"role": "user", "content": "tree\n\none"},
            {"role": "assistant", "content": '{"tool":"read","args":{"path":"a"}}'},
            {"role": "user", "content": "Result:\ntext\n\ntwo"},
        ],
    )
    assert text == expected + '{"tool":"'


@pytest.fixture(params=["local/smollm2-135m", "local/qwen2.5-coder-1.5b", "local/qwen2.5-coder-0.5b"])
def model_file(request: pytest.FixtureRequest) -> Path:
    """A real model file: the small one always, the large ones where they are."""
    name: str = request.param
    if name != "local/smollm2-135m" and not resolve(name, models_folder()).present:
        pytest.skip(f"{name} is not in {models_folder()}, and too large to be fetched for a test")
    return local_model_path(name)


@pytest.fixture
def weights(model_file: Path) -> Iterator[Weights]:
    loaded = Weights.load(model_file)
    yield loaded
    loaded.close()


def test_the_template_in_a_real_file_with_its_real_tokens(weights: Weights) -> None:
    source = weights.chat_template
    assert source is not None
    found = find_junctions(source, weights.bos_text, weights.eos_text, "model.gguf")
    prompts = PromptTokens(weights, found, MemoryWireStore(), "local:test")
    prompt = Prompt.empty().extend([SYSTEM, project("tree"), user("one")])
    first = prompts.request(prompt)
    sampled = weights.tokenize('read","args":{"path":"a"}}')
    reply = block(Role.ASSISTANT, *call("1", "read", '{"path":"a"}').parts, Opaque("local:test", pack(sampled)))
    second = prompts.request(prompt.extend([reply, result("1", "text <|im_end|>"), user("two")]))

    assert second[: len(first) + len(sampled)] == first + sampled
    text = b"".join(weights.piece(token) for token in second).decode()
    expected = rendered(
        source,
        [
            {"role": "system", "content": "You code."},
            {"role": "user", "content": "tree\n\none"},
            {"role": "assistant", "content": '{"tool":"read","args":{"path":"a"}}'},
            {"role": "user", "content": "Result:\ntext <|im_end|>\n\ntwo"},
        ],
        weights.bos_text,
        weights.eos_text,
    )
    assert text == expected + '{"tool":"'
    ends = sum(weights.ends_reply(token) for token in second)
    assert ends == 4, "each message ends with a control token, and text that quotes one ends nothing"


def test_without_a_system_text_the_template_opens_as_it_would() -> None:
    tokenizer = ByteTokenizer()
    prompts = PromptTokens(tokenizer, junctions(CHATML), MemoryWireStore(), "local:test")
    text = tokenizer.text(prompts.request(Prompt.empty().append(user("hi"))))
    assert text == rendered(CHATML, [{"role": "user", "content": "hi"}]) + '{"tool":"'


@pytest.mark.parametrize("source", [GEMMA2, MISTRAL])
def test_a_template_without_a_stable_system_role_gets_the_system_text_in_the_first_message(source: str) -> None:
    tokenizer = ByteTokenizer()
    prompts = PromptTokens(tokenizer, junctions(source), MemoryWireStore(), "local:test")
    text = tokenizer.text(prompts.request(Prompt.empty().extend([SYSTEM, user("one")])))
    assert text == rendered(source, [{"role": "user", "content": "You code.\n\none"}]) + '{"tool":"'


@pytest.mark.parametrize("name", ["gemma-2", "gemma-3", "mistral"])
def test_adjacent_messages_of_one_role_are_merged_where_the_template_wants_alternation(name: str) -> None:
    tokenizer = ByteTokenizer()
    prompts = PromptTokens(tokenizer, junctions(TEMPLATES[name]), MemoryWireStore(), "local:test")
    text = tokenizer.text(prompts.request(Prompt.empty().extend([SYSTEM, project("tree"), user("one"), user("two")])))
    assert "You code.\n\ntree\n\none\n\ntwo" in text


def test_the_system_text_knows_no_date() -> None:
    assert "26 Jul 2024" in junctions(LLAMA3).open_system
    assert junctions("{{ strftime_now('%Y') }}" + CHATML).open_system.startswith("26 Jul 2024")


def test_a_reply_begins_behind_reasoning_that_the_template_has_opened() -> None:
    assert junctions(TEMPLATES["thinker"]).user_reply.endswith("<think>\n\n</think>\n\n")
    assert junctions(TEMPLATES["qwen3"]).user_reply.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for message in messages %}{{ message.content }}", "end of template"),
        ("{{ messages[-1].content }}", "drops, repeats or moves"),
        ("{{ raise_exception('needs tools') }}", "needs tools"),
        ("{{ ().__class__.__base__.__subclasses__() }}", "unsafe"),
        ("{% for i in range(1000000000) %}{% endfor %}", "have no end"),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "have no end"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
        ("{{ 'a' * 1000000000000000000 }}", "without end"),
        ("{{ cycler() }}", "at least one item"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_in_one_line(source: str, reason: str) -> None:
    with pytest.raises(BackendError) as caught:
        junctions(source)
    assert caught.value.kind is ErrorKind.LOCAL
    assert "model.gguf" in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


DOUBLED = "{%% set ns = namespace(t=%s) %%}{%% for i in range(60) %%}{%% set ns.t = %s %%}{%% endfor %%}{{ ns.t }}"
MACROS = "".join(f"{{% macro m{n}() %}}{{{{ m{n - 1}() }}}}{{{{ m{n - 1}() }}}}{{% endmacro %}}" for n in range(1, 60))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**10 }}",
        "{{ [1] * 10**10 }}",
        "{{ 2**(10**10) }}",
        "{{ 'x'|center(10**10) }}",
        "{{ 'x'.ljust(10**10) }}",
        "{{ ('x'|string).zfill(10**10) }}",
        "{{ 'x'|indent(10**10) }}",
        "{{ messages|tojson(indent=10**10) }}",
        "{{ [1]|batch(10**10, 'x')|list }}",
        "{{ [1]|slice(10**10)|list }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10**10, 1) }}",
        "{{ '%10000000000d'|format(1) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ '{x:>{w}}'.format_map({'x': 1, 'w': 10**10}) }}",
        "{{ ('x' * 9999)|replace('x', 'y' * 9999) }}",
        "{{ ('x' * 9999).replace('x', 'y' * 9999) }}",
        "{{ ('y' * 9999).join(['x'] * 9999) }}",
        "{{ (['x'] * 9999)|join('y' * 9999) }}",
        DOUBLED % ("'x'", "ns.t + ns.t"),
        DOUBLED % ("'x'", "ns.t ~ ns.t"),
        DOUBLED % ("'x'", "ns.t|replace('x', 'xx')"),
        DOUBLED % ("[1]", "[ns.t, ns.t]"),
        DOUBLED % ("[1]", "ns.t + ns.t"),
        DOUBLED % ("7", "ns.t * ns.t"),
        "{% macro m0() %}{{ 'x' * 999 }}{% endmacro %}" + MACROS + "{{ m59() }}",
        "{% set t = 'x' %}" + "{% set t %}{{ t }}{{ t }}{% endset %}" * 60,
        "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    ],
)
def test_a_template_that_would_fill_the_memory_is_refused_before_it_does(source: str) -> None:
    tracemalloc.start()
    with pytest.raises(BackendError, match="it makes a text without end"):
        junctions(source)
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


def test_what_honest_templates_do_with_texts_is_allowed() -> None:
    says = """{{ 'a' ~ 1 ~ none ~ 'b'.replace('b', 'cc') ~ 'x'|center(9) ~ '%03d' % 7
        ~ '{:>5}'.format(1) ~ '%s'|format(2)
        ~ '{"id": "1234567"}'|trim
        ~ messages[0]|tojson(indent=4)|length ~ '-' * 40 ~ ([1, 2] + [3]) ~ (20261203 - 1) }}"""
    head = junctions(says + CHATML).open_user
    assert head.startswith("a1Nonecc    x")
    assert '007    12{"id": "1234567"}' in head
    assert f"{'-' * 40}[1, 2, 3]20261202<|im_start|>" in head


def test_an_answer_is_written_in_the_form_of_a_call() -> None:
    assert answer_text('say "hi"') == '{"tool":"answer","args":{"text":"say \\"hi\\""}}'
