"""The table of endpoints, a person's own ones over it, and the models that it makes known."""

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from compatible_support import backend_at, endpoint

from agent.backend_choice import find_model, load_catalog
from agent.config import Folders, load, load_endpoints
from agent.errors import UserError
from agent.redact import Redactor
from backends import compatible_endpoints
from backends.catalog import Catalog
from backends.compatible_endpoints import ANY_READ_FIELD, EndpointError
from context.cache_rules import CacheRules

CLOUD = ["deepseek", "openrouter", "xai", "moonshot", "zai", "qwen", "mistral", "groq", "gemini"]
NAMES = [*CLOUD, "llama-server", "vllm", "sglang", "ollama", "lmstudio"]


def own(**row: Any) -> dict[str, compatible_endpoints.Endpoint]:
    return compatible_endpoints.load_endpoints({"mine": row}, "config.toml")


@pytest.mark.parametrize("name", NAMES)
def test_every_row_makes_a_model_that_can_be_called(name: str) -> None:
    """Rows are data: a slip in one would show in the middle of someone's session."""
    row = endpoint(name)
    model = Catalog.load().find(f"{name}/some/model-1.5")
    assert (model.name, model.assumed, model.prices) == (f"{name}/some/model-1.5", True, row.prices)
    assert row.read_fields
    assert row.base_url.startswith("https://" if row.key_env else "http://127.0.0.1:")
    assert (row.key_env is None) == row.free == (row.start is not None)
    assert (row.cache_control != "no") <= row.parts
    for family in row.families:
        other = row.for_model(family.match.replace("*", "x"))
        assert (other.cache_control != "no") <= other.parts
        assert (model_of(name, family.match.replace("*", "x")).kind == "markers") == (other.cache_control != "no")


def model_of(name: str, model: str) -> CacheRules:
    return Catalog.load().find(f"{name}/{model}").cache_rules


def test_every_row_says_where_it_is_from() -> None:
    text = Path(compatible_endpoints.__file__).with_name("endpoints.toml").read_text("utf-8")
    rows = [part for part in text.split("\n[") if part.partition("]")[0] in tomllib.loads(text)]
    assert len(rows) == len(NAMES)
    assert [part.partition("]")[0] for part in rows if "#" not in part.partition("base_url")[2].splitlines()[0]] == []


def test_families_of_one_endpoint_have_rules_of_their_own() -> None:
    claude, other = model_of("openrouter", "anthropic/claude-opus-5.5"), model_of("openrouter", "openai/gpt-6.1-sol")
    assert (claude.kind, claude.max_markers, claude.lookback, claude.ttl_long) == ("markers", 4, 20, 3600)
    assert (other.kind, other.max_markers, other.ttl_long) == ("automatic", 0, None)
    assert model_of("qwen", "qwen3-coder-plus").ttl_long is None
    assert model_of("qwen", "qwen4-max").ttl_long == 3600


def test_a_row_of_the_catalogue_goes_over_what_the_endpoint_assumes() -> None:
    known = Catalog.load().find("deepseek/deepseek-flash")
    assert (known.context, known.assumed, known.cache_step) == (1_000_000, False, 64)
    assert known.read == Decimal("0.02")


def test_a_model_of_an_endpoint_takes_what_the_person_says_of_it(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[defaults.vllm]\ncontext = 65536\n[vllm."Qwen/Qwen3-Coder"]\nmax_output = 4096\n')
    catalog = Catalog.load(path)
    assert catalog.find("vllm/other").context == 65_536
    model = catalog.find("vllm/Qwen/Qwen3-Coder")
    assert (model.context, model.max_output, model.assumed) == (65_536, 4096, False)


def test_ones_own_keys_go_over_a_row_and_leave_the_rest() -> None:
    mine = compatible_endpoints.load_endpoints(
        {"vllm": {"base_url": "https://gpu.example.org/v1", "key_env": "GPU_KEY", "model": {"context": 1000}}},
        "config.toml",
    )["vllm"]
    built_in = endpoint("vllm")
    assert (mine.base_url, mine.key_env, mine.reasoning) == (
        "https://gpu.example.org/v1",
        "GPU_KEY",
        built_in.reasoning,
    )
    assert mine.model == {**built_in.model, "context": 1000}
    assert mine.free, "one's own machine, elsewhere"


def test_an_empty_text_turns_a_quirk_off() -> None:
    row = compatible_endpoints.load_endpoints({"xai": {"affinity_header": "", "reasoning": ""}}, "config.toml")["xai"]
    assert (row.affinity_header, row.reasoning) == (None, None)


def test_of_a_new_endpoint_nothing_is_assumed() -> None:
    endpoints = own(base_url="https://gateway.example.org/v1", model={"read": 0.25})
    row = endpoints["mine"]
    assert row.read_fields == ANY_READ_FIELD
    assert (row.parts, row.reasoning, row.key_env, row.prices) == (False, None, None, "unknown")
    model = Catalog.load(endpoints=endpoints).find("mine/a")
    assert (model.cache, model.read, model.prices) == ("automatic", Decimal("0.25"), "unknown")


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("mine", {}, "base_url is missing"),
        ("olama", {"key_env": "OLAMA_KEY"}, "Did you mean 'ollama'"),
        ("mine", {"base_url": "gateway.example.org"}, "must be a web address"),
        ("mine", {"base_url": "http://host:99999/v1"}, "must be a web address"),
        ("mine", {"base_url": "https://h/v1", "afinity_field": "x"}, "did you mean 'affinity_field'"),
        ("mine", {"base_url": "https://h/v1", "parts": "yes"}, "parts must be true or false"),
        ("mine", {"base_url": "https://h/v1", "call_id_length": True}, "call_id_length must be a whole number"),
        ("mine", {"base_url": "https://h/v1", "read_fields": "usage.x"}, "read_fields must be a list of names"),
        ("mine", {"base_url": "https://h/v1", "cache_control": "1h"}, "'no', 'short' or 'long'"),
        ("mine", {"base_url": "https://h/v1", "families": [{"parts": True}]}, "has no match"),
        (
            "mine",
            {"base_url": "https://h/v1", "families": [{"match": "a*", "base_url": "https://i"}]},
            "unknown key 'base_url'",
        ),
        ("mine", {"base_url": "https://h/v1", "model": 5}, "model must be a table"),
        ("mine", {"base_url": "https://h/v1", "key_env": "PORT"}, "with KEY, TOKEN or SECRET in its name"),
        ("openai", {"base_url": "https://h/v1"}, "'openai' is taken"),
        ("My Server", {"base_url": "https://h/v1"}, "small letters"),
        ("mine", "https://h/v1", "must be a table"),
    ],
)
def test_a_slip_in_the_table_is_one_line_that_names_the_place(name: str, row: Any, words: str) -> None:
    with pytest.raises(EndpointError) as caught:
        compatible_endpoints.load_endpoints({name: row}, "config.toml")
    assert words in str(caught.value)
    assert f"config.toml, [endpoints.{name}]" in str(caught.value)


def written(home: Path, text: str) -> Folders:
    (home / "config.toml").write_text(text)
    return Folders.find({"KEEPWARM_HOME": str(home)})


def test_the_configuration_file_names_endpoints_beside_the_settings(home: Path) -> None:
    folders = written(
        home,
        'model = "mine/org/big"\n[endpoints.mine]\nbase_url = "https://h.example/v1"\n'
        'key_env = "MINE_KEY"\n[endpoints.mine.model]\ncontext = 65536\nread = 0.25\n',
    )
    assert load(folders, {}, {}).model == "mine/org/big"
    assert load_endpoints(folders)["mine"].key_env == "MINE_KEY"
    model = find_model("mine/org/big", load_catalog(folders))
    assert (model.id, model.context, model.read) == ("org/big", 65_536, Decimal("0.25"))


def test_a_key_in_the_place_of_its_variable_is_not_shown() -> None:
    with pytest.raises(EndpointError) as caught:
        own(base_url="https://h/v1", key_env="sk-live-0123456789")
    assert "0123456789" not in str(caught.value)


def test_the_value_of_every_key_variable_is_taken_for_a_secret() -> None:
    """Rule R10."""
    for row in compatible_endpoints.load_endpoints().values():
        if row.key_env is not None:
            assert Redactor({row.key_env: "0123456789abc"})("0123456789abc") == f"[secret {row.key_env}]"
            assert own(base_url="https://h/v1", key_env=row.key_env)["mine"].key_env == row.key_env


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[endpoints.mine]\nbase_url = "nowhere"\n', "must be a web address"),
        ("endpoints = 5\n", "endpoints must be tables"),
        ('[endpoints.mine]\nbase_url = "https://h/v1"\n[endpoints.mine.model]\ncontxt = 5\n', "did you mean context"),
        ('[endpoints.mine]\nbase_url = "https://h/v1"\n[endpoints.mine.model]\ncontext = "big"\n', "context must be"),
    ],
)
def test_a_slip_in_the_file_is_told_at_once(home: Path, text: str, words: str) -> None:
    folders = written(home, text)

    def start() -> None:
        load(folders, {}, {})
        load_catalog(folders)

    with pytest.raises(UserError, match=words):
        start()


def test_a_name_without_an_endpoint_is_told(home: Path) -> None:
    with pytest.raises(UserError, match=r"No model 'olama/x'"):
        find_model("olama/x", load_catalog(written(home, "")))


async def test_an_address_without_a_host_never_reaches_the_sdk() -> None:
    with pytest.raises(EndpointError):
        backend_at("http://", "vllm", "m")
