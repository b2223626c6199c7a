"""Secrets of the environment never reach the prompt, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.redact import Redactor

KEY = "sk-ant-0123456789"


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "GITHUB_TOKEN",
        "gitlab_token",
        "CLIENT_SECRET",
        "DB_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "KEY",
        "AWS_SECRET_ACCESS_KEY",
        "SIGNING_KEY_V2",
        "MYAPIKEY",
        "GITHUB_PAT",
        "GPG_PASSPHRASE",
    ],
)
def test_what_is_named_a_secret_is_taken_out(name):
    assert Redactor({name: KEY})(f"key={KEY}, again {KEY}") == f"key=[secret {name}], again [secret {name}]"


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "OLDPWD", "KEYBOARD_LAYOUT", "XKEYMAP", "SSL_KEY_FILE", "TOKEN_PATH", "SSH_AUTH_SOCK", "COMPASS"],
)
def test_what_is_not_stays(name):
    assert Redactor({name: "/home/someone/x"})("/home/someone/x") == "/home/someone/x"


def test_short_values_occur_by_chance_and_stay():
    assert Redactor({"TOKENIZERS_PARALLELISM": "false", "MY_KEY": "1234567"})("false 1234567") == "false 1234567"


def test_the_longest_secret_wins():
    redact = Redactor({"SHORT_KEY": "abcdefgh", "LONG_KEY": "abcdefghij"})
    assert redact("abcdefghij abcdefghi") == "[secret LONG_KEY] [secret SHORT_KEY]i"


def test_a_private_key_is_taken_out_line_by_line_too():
    body = ["MIIEowIBAAKCAQEA7bq9", "xYzW8vUuTtSsRrQqPpOo"]
    redact = Redactor(
        {"DEPLOY_KEY": "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(body) + "\n-----END RSA PRIVATE KEY-----\n"}
    )
    assert redact(f"  {body[1]}\n") == "  [secret DEPLOY_KEY]\n"
    assert redact("-----BEGIN RSA PRIVATE KEY-----") == "-----BEGIN RSA PRIVATE KEY-----"


def test_characters_of_patterns_mean_themselves():
    assert Redactor({"API_KEY": "a.c*(x)[y"})("abc a.c*(x)[y") == "abc [secret API_KEY]"


def test_without_secrets_text_passes():
    assert Redactor({})("anything") == "anything"


def test_placeholders_are_known():
    redact = Redactor({"API_KEY": KEY})
    assert redact.placeholder_in("x = [secret API_KEY]") == "[secret API_KEY]"
    assert redact.placeholder_in("x = [secret OTHER]") is None


SECRETS = {"A_KEY": "abababab", "B_KEY": "ababababc", "C_KEY": "bcabcabca", "D_TOKEN": "ccccccccc"}


@given(pieces=st.lists(st.text("abc", max_size=12), max_size=12))
def test_a_stream_gives_the_same_text_however_it_is_cut(pieces):
    redact, out = Redactor(SECRETS), []
    stream = redact.stream(out.append)
    for piece in pieces:
        stream.feed(piece)
    stream.close()
    assert "".join(out) == redact("".join(pieces))


def test_a_stream_holds_back_only_what_may_become_a_secret():
    out = []
    stream = Redactor({"API_KEY": KEY}).stream(out.append)
    stream.feed("hello ")
    assert out == ["hello "]
    stream.feed(f"a {KEY[:5]}")
    assert out == ["hello ", "a "]
    stream.feed("no")
    assert "".join(out) == f"hello a {KEY[:5]}no"


def test_a_password_within_an_address_is_a_secret() -> None:
    redact = Redactor({"DATABASE_URL": "postgres://shop:correct-horse@db/shop", "HOMEPAGE": "https://example.org/@me"})
    assert redact("psql with correct-horse to db/shop") == "psql with [secret DATABASE_URL] to db/shop"


@pytest.mark.parametrize("name", ["SSHPASS", "NPM_AUTH", "SESSION_COOKIE", "JWT", "SIGNING_PRIVATE"])
def test_more_names_of_secrets(name: str) -> None:
    assert Redactor({name: "abcdefgh1234"})("x abcdefgh1234") == f"x [secret {name}]"
