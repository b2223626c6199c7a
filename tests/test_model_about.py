"""What `agent models show` reads from a file: facts and memory, from headers alone, damaged ones too."""

import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from gguf_support import TINY, Raw, header
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import BackendError
from backends.llama import native
from backends.llama.about import About, Layers, read_about
from backends.llama.gguf import fingerprint, part_paths, read_contents, read_header
from backends.llama.needs import Demand, Verdict, needs
from backends.llama.weights import Kind, Weights

pytest_plugins = ["local_models"]


def about_of(folder: Path, **more: Any) -> About:
    """The facts of a tiny model with `more` metadata: `a__b` is the key `a.b`."""
    path = folder / "m.gguf"
    path.write_bytes(header({**TINY, **{key.replace("__", "."): value for key, value in more.items()}}))
    return read_about(path)


def test_a_real_file_says_what_it_is(smollm2_path: Path) -> None:
    model = read_about(smollm2_path)
    assert (model.architecture, model.quantisation, model.licence) == ("llama", "Q4_1", "apache-2.0")
    assert model.parameters == 134_515_008
    assert (model.context, model.kind, model.window) == (8192, Kind.ATTENTION, 0)
    assert (model.chat_template, model.tools, model.thinking) == (True, False, "no")
    assert (model.vocabulary, model.tokenizer, model.parts) == (49_152, "gpt2", 1)
    assert (model.bytes, model.missing) == (98_362_432, 0)


def test_the_memory_is_what_the_loaded_model_is_found_to_need(smollm2_path: Path) -> None:
    model = read_about(smollm2_path)
    assert model.layers is not None
    weights = Weights.load(smollm2_path)
    try:
        for kv_type in native.KV_TYPES:
            loaded = native.cache_bytes(weights.pointer, 8192, kv_type)
            assert Demand.of(model.layers, kv_type).total(8192, 1) == pytest.approx(loaded, rel=0.05)
        assert model.kind is weights.kind
        assert model.context == weights.trained_context
        assert model.vocabulary == weights.size
    finally:
        weights.close()


def test_a_cut_off_file_is_known_by_its_tensors(smollm2_path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_path.open("rb") as whole:
        cut.write_bytes(whole.read(20_000_000))
    assert read_about(cut).missing == 98_362_432 - 20_000_000


@pytest.mark.parametrize(
    ("more", "kind", "window", "layers"),
    [
        ({}, Kind.ATTENTION, 0, Layers(2 * 2 * 32, 0)),
        ({"llama__attention__key_length": 24, "llama__attention__value_length": 8}, Kind.ATTENTION, 0, Layers(128, 0)),
        ({"llama__attention__sliding_window": 512}, Kind.WINDOW, 512, Layers(128, 0)),
        ({"llama__attention__head_count_kv": [2, 1]}, Kind.ATTENTION, 0, Layers(96, 0)),
        (
            {"llama__attention__head_count_kv": [0, 2], "llama__ssm__inner_size": 128, "llama__ssm__state_size": 16}
            | {"llama__ssm__conv_kernel": 4},
            Kind.HYBRID,
            0,
            Layers(64, 3 * 128 + 16 * 128),
        ),
        (
            {"llama__attention__head_count_kv": 0, "llama__attention__head_count": 0, "llama__ssm__inner_size": 128}
            | {"llama__ssm__state_size": 16, "llama__ssm__conv_kernel": 4},
            Kind.RECURRENT,
            0,
            Layers(0, 2 * (3 * 128 + 16 * 128)),
        ),
        (
            {"llama__attention__head_count": 0, "llama__attention__head_count_kv": 0, "llama__wkv__head_size": 16},
            Kind.RECURRENT,
            0,
            Layers(0, 2 * (64 * 16 + 64 * 2)),
        ),
        (
            {"llama__full_attention_interval": 2, "llama__ssm__inner_size": 32, "llama__ssm__state_size": 4},
            Kind.HYBRID,
            0,
            Layers(64, 4 * 32),
        ),
        ({"llama__attention__head_count_kv": [2, 2, 2]}, Kind.ATTENTION, 0, Layers(256, 0)),  # not one a layer: heads
        ({"llama__block_count": 0}, Kind.ATTENTION, 0, None),
        ({"llama__block_count": 4_000_000_000}, Kind.ATTENTION, 0, None),
        ({"llama__block_count": "two"}, Kind.ATTENTION, 0, None),
    ],
)
def test_the_kind_of_window_and_what_a_token_keeps(
    tmp_path: Path, more: dict[str, Any], kind: Kind, window: int, layers: Layers | None
) -> None:
    model = about_of(tmp_path, **more)
    assert (model.kind, model.window, model.layers) == (kind, window, layers)


@pytest.mark.parametrize(
    ("template", "tools", "thinking"),
    [
        ("{{ messages[0].content }} has tools", False, "no"),  # the word in the text is no use of them
        ("{%- if tools %}{{ tools | tojson }}{% endif %}", True, "no"),
        ("{% if enable_thinking %}<think>{% endif %}", False, "can be switched"),
        ("{{ '<think>\\n' }}", False, "yes"),
        ("{% if message.reasoning_content %}{% endif %}", False, "yes"),
    ],
)
def test_what_the_template_knows(tmp_path: Path, template: str, tools: bool, thinking: str) -> None:
    model = about_of(tmp_path, tokenizer__chat_template=template)
    assert (model.chat_template, model.tools, model.thinking) == (True, tools, thinking)


def test_a_base_model_has_no_template_and_a_second_one_counts(tmp_path: Path) -> None:
    assert not about_of(tmp_path).chat_template
    assert about_of(tmp_path, tokenizer__chat_template="x", tokenizer__chat_template__tool_use="{{ tools }}").tools


def test_the_quantisation_is_that_of_most_weights_where_the_file_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(TINY, [("a", (64, 8), 12, 0), ("b", (8,), 0, 288)]) + bytes(320))
    model = read_about(path)
    assert (model.quantisation, model.parameters, model.missing) == ("mostly Q4_K", 520, 0)


def test_the_table_of_needs(tmp_path: Path) -> None:
    model = about_of(tmp_path, llama__context_length=40_960)
    rows = needs(model, None)
    assert [(row.context, row.kv_type) for row in rows] == [
        (size, kv_type) for size in (4_096, 16_384, 32_768, 40_960) for kv_type in ("f16", "q8_0")
    ]
    assert [row.cache for row in rows[:2]] == [4_096 * 128 * 2, 4_096 * 128 * 34 // 32]
    assert {row.verdict for row in rows} == {Verdict.UNKNOWN}
    small = about_of(tmp_path, llama__context_length=2_048)
    assert {row.context for row in needs(small, None)} == {2_048}, "nobody can use more than was trained"


def test_whether_it_can_run_agrees_with_what_the_engine_refuses(tmp_path: Path) -> None:
    model = about_of(tmp_path)
    asked = Demand.of(Layers(128, 0)).total(4_096 + 1_024, 1)
    for free, verdict in (
        (asked - 1, Verdict.TOO_LARGE),
        (asked, Verdict.SLOW),
        (asked + model.bytes, Verdict.FITS),
    ):
        assert needs(model, free)[0].verdict is verdict


def split(folder: Path, count: int = 3) -> Path:
    for number in range(1, count + 1):
        more = dict(TINY) if number == 1 else {}
        path = folder / f"m-{number:05}-of-{count:05}.gguf"
        path.write_bytes(header({**more, "split.count": count}, [(f"t{number}", (100,), 0, 0)]) + bytes(400))
    return folder / f"m-00001-of-{count:05}.gguf"


def test_a_split_model_is_all_of_its_parts(tmp_path: Path) -> None:
    first = split(tmp_path)
    model = read_about(first)
    assert (model.parts, model.parameters, model.missing) == (3, 300, 0)
    assert model.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_a_split_model_without_all_parts_says_which(tmp_path: Path) -> None:
    first = split(tmp_path)
    with pytest.raises(BackendError, match=r"is part 2 of 3 .*m-00001-of-00003.gguf"):
        part_paths(tmp_path / "m-00002-of-00003.gguf")
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    for read in (read_about, fingerprint, Weights.load):
        with pytest.raises(BackendError, match=r"first of 3 parts, and 1 .* such as m-00002-of-00003.gguf"):
            read(first)


def test_a_change_in_any_part_is_another_model(tmp_path: Path) -> None:
    first = split(tmp_path)
    before = fingerprint(first)
    last = tmp_path / "m-00003-of-00003.gguf"
    last.write_bytes(last.read_bytes()[:-1] + b"x")
    assert fingerprint(first) != before


HUGE = (1 << 63) - 1


@pytest.mark.parametrize(
    "data",
    [
        header({}, pairs=HUGE),
        header({}, tensor_count=HUGE),
        header({"k": Raw(9, struct.pack("<IQ", 4, HUGE))}),
        header({"k": Raw(9, struct.pack("<IQ", 8, HUGE))}),
        header({"k": Raw(9, struct.pack("<IQ", 8, 1 << 21))}) + bytes(32),
        header({"k": Raw(9, struct.pack("<IQ", 9, 1) * 5_000)}),
        header({"k": Raw(8, struct.pack("<Q", 1 << 29))}),
        header({"k": Raw(9, struct.pack("<IQQ", 8, 2, HUGE))}),
        header({}, [("t", (1,) * 9, 0, 0)]),
        header({**TINY, "k": Raw(99, b"")}),
        header(TINY)[:-40],
        header({"general.architecture": Raw(8, struct.pack("<Q", 2) + b"\xff\xfe")}),
        header({"general.name": "x"}),
    ],
    ids=[
        "pairs",
        "tensors",
        "numbers",
        "strings",
        "short",
        "nested",
        "text",
        "string",
        "dims",
        "type",
        "cut",
        "utf8",
        "none",
    ],
)
def test_a_damaged_header_is_one_line_at_once_and_fills_no_memory(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(BackendError) as caught:
        read_about(path)
    assert time.process_time() - started < 2
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_endless_empty_strings_in_a_large_file_do_not_hold_us_up(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header({"k": Raw(9, struct.pack("<IQ", 8, 1 << 30))}))
    with path.open("r+b") as file:
        file.truncate(16 << 30)  # holes: 16 GiB of zeros that take no disk space
    started = time.process_time()
    for read in (read_contents, read_header):
        with pytest.raises(BackendError, match="damaged"):
            read(path)
    assert time.process_time() - started < 2


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_an_error_a_person_can_read_or_still_a_header(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(
        header({**TINY, "tokenizer.ggml.tokens": ["a", "b"], "x": [1, 2]}, [("t", (4, 4), 0, 0)]) + bytes(64)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    said = ""
    try:
        needs(read_about(path), 1)
    except BackendError as error:
        said = str(error)
    assert "\n" not in said


def test_text_in_a_header_is_read_whole(tmp_path: Path) -> None:
    name = "漢字 " * 1_000
    assert about_of(tmp_path, general__name=name).name == name
