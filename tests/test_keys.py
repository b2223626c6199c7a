"""Keys in a keyring: a real backend of the keyring library, in the program's own process."""

import json
import sys
from pathlib import Path

import pexpect
import pytest
from conftest import ROOT, RunAgent
from emulator.server import Emulator
from scripted import Call, plan

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def keyring(tmp_path: Path, environment: dict[str, str]) -> Path:
    """The keyring's file; the program finds the backend by keyring's own configuration."""
    configuration = tmp_path / "xdg" / "python_keyring" / "keyringrc.cfg"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(
        f"[backend]\ndefault-keyring=keyring_file.FileKeyring\nkeyring-path={Path(__file__).parent}\n"
    )
    environment |= {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "TEST_KEYRING": str(tmp_path / "keyring.json")}
    return tmp_path / "keyring.json"


@pytest.mark.usefixtures("keyring")
def test_a_key_is_asked_for_without_being_shown(environment: dict[str, str]) -> None:
    program = [str(ROOT / "keepwarm.py"), "keys", "set", "anthropic"]
    child = pexpect.spawn(sys.executable, program, env=environment, encoding="utf-8", timeout=30)  # type: ignore[arg-type]
    child.expect_exact("Key for anthropic (it is not shown): ")
    child.waitnoecho()
    child.sendline(KEY)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert "in the keyring (a file)" in child.before
    assert KEY not in child.before


def test_a_key_comes_goes_and_is_never_shown(keyring: Path, home: Path, run_agent: RunAgent) -> None:
    assert run_agent("keys", "ls").stdout.startswith("There are no keys.")
    assert run_agent("keys", "set", "deepseek", stdin=f"{KEY}\n").returncode == 0
    assert json.loads(keyring.read_text()) == {"keepwarm/deepseek": KEY}
    listed = run_agent("keys", "ls", env={"OPENAI_API_KEY": KEY})
    assert "keyring (a file)" in listed.stdout
    assert "environment (OPENAI_API_KEY)" in listed.stdout
    both = run_agent("keys", "ls", env={"DEEPSEEK_API_KEY": "sk-another-0123456"})
    assert "goes before the one in the keyring" in both.stdout
    rows = json.loads(run_agent("keys", "ls", "--json").stdout)
    assert rows == [{"endpoint": "deepseek", "from": "keyring", "name": "a file"}]
    assert "a key is set in DEEPSEEK_API_KEY" in run_agent("doctor").stdout
    told = [listed, both, run_agent("keys", "rm", "deepseek")]
    assert told[-1].returncode == 0
    assert json.loads(keyring.read_text()) == {}
    assert run_agent("keys", "rm", "deepseek").returncode == 1
    assert not any(KEY in result.stdout + result.stderr for result in told)
    assert not any(KEY in path.read_text(errors="replace") for path in home.rglob("*") if path.is_file())


@pytest.mark.usefixtures("keyring")
def test_the_models_provider_gets_the_key_and_commands_do_not(
    run_agent: RunAgent, anthropic_server: Emulator, home: Path, repository: Path
) -> None:
    """The redactor knows it too: the command below reads it from where it lies."""
    env = {name: value for name, value in anthropic_server.env.items() if name != "ANTHROPIC_API_KEY"}
    env["TEST_KEYRING"] = str(repository / "ring.json")
    assert run_agent("keys", "set", "anthropic", stdin=KEY, env=env).returncode == 0
    look = 'echo "in the environment: <$ANTHROPIC_API_KEY>"; cat ring.json'
    anthropic_server.play(plan(Call("shell", {"command": look})))
    told = run_agent("run", "--mode", "auto", f"Look at {KEY}", env=env)
    assert told.returncode == 0, told.stderr
    sent = json.dumps(anthropic_server.bodies)
    assert "in the environment: <>" in sent
    assert "[secret ANTHROPIC_API_KEY]" in sent
    assert KEY not in sent + told.stdout + told.stderr
    assert not any(KEY.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("endpoint", "key", "words"),
    [
        ("antropic", KEY, "Did you mean 'anthropic'?"),
        ("ollama", KEY, "ollama takes no key"),
        ("anthropic", " ", "There was no key"),
        ("anthropic", "two words", "holds a space"),
    ],
)
def test_what_is_no_key_is_not_stored(keyring: Path, run_agent: RunAgent, endpoint: str, key: str, words: str) -> None:
    told = run_agent("keys", "set", endpoint, stdin=key)
    assert told.returncode == 2
    assert words in told.stderr
    assert not keyring.exists()


@pytest.mark.parametrize("backend", ["keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"])
def test_where_there_is_no_keyring_one_line_says_so(run_agent: RunAgent, backend: str) -> None:
    told = run_agent("keys", "set", "anthropic", stdin=KEY, env={"PYTHON_KEYRING_BACKEND": backend})
    assert told.returncode == 1
    assert told.stderr.count("\n") == 1
    assert "Set ANTHROPIC_API_KEY in the environment instead." in told.stderr
    assert KEY not in told.stderr


def test_a_locked_keyring_stops_only_who_needs_it(
    keyring: Path, run_agent: RunAgent, anthropic_server: Emulator
) -> None:
    run_agent("keys", "set", "deepseek", stdin=KEY)
    keyring.write_text("locked")
    anthropic_server.play(plan())
    told = run_agent("run", "hello", env=anthropic_server.env)
    assert told.returncode == 0
    assert "The keyring is locked. Unlock it, or set DEEPSEEK_API_KEY in the environment." in told.stderr
