"""The model catalogue: what is known, what a user may say instead, and what happens to names that nobody knows."""

from decimal import Decimal
from pathlib import Path

import pytest

from backends.catalog import Catalog, CatalogError, default_model
from context.cache_rules import CacheRules


def written(directory: Path, text: str) -> Path:
    path = directory / "models.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_default_cloud_model_has_the_limits_and_multipliers_of_its_page() -> None:
    model = Catalog.load().find("anthropic/claude-sonnet-5-5")
    assert (model.context, model.max_output, model.thinking) == (1_000_000, 128_000, "adaptive")
    assert (model.read, model.write, model.write_long) == (Decimal("0.05"), Decimal("1.25"), Decimal(2))
    assert (model.ttl_short, model.ttl_long) == (300, 3600)
    assert not model.assumed


@pytest.mark.parametrize(
    ("name", "read"),
    [("claude-fable-5-2", "0.025"), ("claude-opus-5-5", "0.05"), ("claude-opus-5", "0.1"), ("claude-haiku-5-5", "0.1")],
)
def test_reads_are_priced_per_model(name: str, read: str) -> None:
    assert Catalog.load().find(f"anthropic/{name}").read == Decimal(read)


@pytest.mark.parametrize(
    ("name", "minimum"),
    [("claude-opus-5", 512), ("claude-sonnet-5", 1024), ("claude-opus-4-7", 2048), ("claude-haiku-4-5", 4096)],
)
def test_the_minimum_prefix_is_told_to_the_planner(name: str, minimum: int) -> None:
    capabilities = Catalog.load().find(f"anthropic/{name}").capabilities
    assert capabilities.cache == CacheRules(min_tokens=minimum)


def test_the_tokenizer_changed_with_claude_4_7() -> None:
    catalog = Catalog.load()
    assert catalog.find("anthropic/claude-opus-4-6").token_scale == 1.25
    assert catalog.find("anthropic/claude-opus-4-7").token_scale == 1.55


def test_a_dated_name_is_the_undated_model_and_keeps_its_name() -> None:
    model = Catalog.load().find("anthropic/claude-haiku-4-5-20251001")
    assert (model.min_cache_tokens, model.assumed) == (4096, False)
    assert model.name == "anthropic/claude-haiku-4-5-20251001"


def test_an_unknown_model_of_a_known_provider_is_assumed_and_never_sent_what_an_older_one_refuses() -> None:
    model = Catalog.load().find("anthropic/claude-sonnet-9")
    assert model.assumed
    assert (model.context, model.thinking) == (200_000, "none")


@pytest.mark.parametrize("name", ["local/qwen2.5-coder-1.5b", "local:/models/x.gguf", "local:./my model"])
def test_local_names_survive_the_catalogue(name: str) -> None:
    model = Catalog.load().find(name)
    assert (model.provider, model.name, model.max_markers) == ("local", name, 0)


@pytest.mark.parametrize("name", ["claude-sonnet-5-5", "anthropc/claude-sonnet-5-5"])
def test_a_name_without_a_known_provider_gets_the_likely_one_as_advice(name: str) -> None:
    with pytest.raises(CatalogError, match=r"Did you mean anthropic/claude-sonnet-5-5\?"):
        Catalog.load().find(name)


@pytest.mark.parametrize("name", ["", "anthropic/", "/", "gpt-6/x", "local:"])
def test_a_name_that_means_nothing_is_one_clear_line(name: str) -> None:
    with pytest.raises(CatalogError) as caught:
        Catalog.load().find(name)
    assert "\n" not in str(caught.value)


def test_a_user_corrects_one_number_and_keeps_the_others(tmp_path: Path) -> None:
    user = written(tmp_path, "[anthropic.claude-sonnet-5-5]\nmin_cache_tokens = 2048\n")
    model, before = Catalog.load(user).find("anthropic/claude-sonnet-5-5"), Catalog.load()
    assert model.min_cache_tokens == 2048
    assert model.context == before.find("anthropic/claude-sonnet-5-5").context
    assert model.source == str(user)


def test_a_user_adds_a_model_from_its_providers_defaults(tmp_path: Path) -> None:
    user = written(tmp_path, '[anthropic.claude-next]\ncontext = 2_000_000\nthinking = "adaptive"\n')
    catalog = Catalog.load(user)
    model = catalog.find("anthropic/claude-next")
    assert (model.context, model.max_markers, model.assumed) == (2_000_000, 4, False)
    assert "anthropic/claude-next" in catalog.names()


def test_a_missing_user_file_is_no_error(tmp_path: Path) -> None:
    assert Catalog.load(tmp_path / "models.toml").names() == Catalog.load().names()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[anthropic.claude-x]\ncontxt = 5", r"unknown key 'contxt'; did you mean context\?"),
        ("[anthropic.claude-x]\ncontext = -5", "context must be a whole number"),
        ("[anthropic.claude-x]\ncontext = true", "context must be a whole number"),
        ('[anthropic.claude-x]\nread = "cheap"', "read must be a number"),
        ("[anthropic.claude-x]\nread = nan", "read must be a number"),
        ('[anthropic.claude-x]\nthinking = "deep"', "thinking must be"),
        ("[anthropic.claude-x.price]\ninput = 2", "output is missing"),
        ("[anthropic.claude-x.price]\ninput = 2\noutput = 3\nread = 1", "unknown key 'read'"),
        ("[acme.rocket]\ncontext = 5", r"\[acme.rocket\]: max_output is missing"),
        ("anthropic = 5", "must hold tables"),
        ("[anthropic", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_users_file_names_the_file_and_the_mistake(tmp_path: Path, text: str, says: str) -> None:
    user = written(tmp_path, text)
    with pytest.raises(CatalogError, match=says) as caught:
        Catalog.load(user)
    assert str(user) in str(caught.value)


def test_the_key_in_the_environment_picks_the_model() -> None:
    assert default_model({"ANTHROPIC_API_KEY": "k"}) == "anthropic/claude-sonnet-5-5"
    assert default_model({"ANTHROPIC_AUTH_TOKEN": "t"}) == "anthropic/claude-sonnet-5-5"
    assert default_model({"OPENAI_API_KEY": "k"}) == "openai/gpt-6.2-sol"
    assert default_model({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}) == "anthropic/claude-sonnet-5-5"
    assert default_model({"ANTHROPIC_API_KEY": " "}) == "local/qwen2.5-coder-1.5b"
