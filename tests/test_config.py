"""`agent config`: where each setting comes from, changing one, and what a repository's file may say."""

import json
import os
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import RunAgent
from emulator.server import Emulator
from hypothesis import given
from hypothesis import strategies as st
from scripted import plan

from agent.config import NAMES, Folders, load, load_with_origins
from agent.config_edit import set_value, unset_value
from agent.config_file import ConfigFile
from agent.errors import USAGE, UserError
from agent.project_config import ADDS, LOWERS, SETS, project_notice

OWN = '# mine\nmode = "plan"  # careful\n\n[endpoints.mine]\n# the big one\nbase_url = "https://h/v1"\n'


@pytest.fixture
def folders(home: Path) -> Folders:
    return Folders.find({"KEEPWARM_HOME": str(home)})


def theirs(repository: Path, text: str) -> Path:
    path = repository / ".keepwarm" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_each_value_says_where_it_comes_from(home: Path, repository: Path, run_agent: RunAgent) -> None:
    (home / "config.toml").write_text(OWN)
    project = theirs(repository, "\n# draws\nseed = 4\n")
    env = {"KEEPWARM_MAX_COST": "0.50", "KEEPWARM_TEMPRATURE": "x"}
    told = run_agent("config", "--json", env=env)
    report = json.loads(told.stdout)
    settings = report["settings"]
    assert settings["mode"] == {"value": "plan", "from": "user", "place": f"{home / 'config.toml'}:2"}
    assert settings["seed"] == {"value": 4, "from": "project", "place": f"{project}:3"}
    assert settings["max_cost"] == {"value": "0.50", "from": "environment", "place": "KEEPWARM_MAX_COST"}
    assert settings["lens"] == {"value": False, "from": "default", "place": None}
    assert report["endpoints"] == ["mine"]
    assert report["warnings"] == [
        "KEEPWARM_TEMPRATURE in the environment is no setting. Did you mean KEEPWARM_TEMPERATURE?"
    ]
    table = run_agent("config", env=env)
    assert all(name in table.stdout for name in NAMES)
    assert f"{project}:3 (of this repository)" in table.stdout
    assert "KEEPWARM_TEMPRATURE" in table.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('\nmoed = "plan"\n', ":2 has an unknown setting 'moed'. Did you mean 'mode'?"),
        ('# x\n\ndry_breakers = [\n "a",\n 5,\n]\n', ":3: dry_breakers must be a list of texts"),
        ('a = """\nmode = 1\n"""\n', ":1 has an unknown setting 'a'"),
        ("mode = plan\n", "line 1"),
        (f"{OWN}parts = 1\n", ":4, [endpoints.mine]: parts must be true or false"),
        ("endpoints = 3\n", ":1: endpoints must be tables"),
    ],
)
def test_an_error_names_file_and_line(home: Path, run_agent: RunAgent, text: str, words: str) -> None:
    (home / "config.toml").write_text(text)
    told = run_agent("config")
    assert told.returncode == USAGE
    assert words in told.stderr
    assert str(home / "config.toml") in told.stderr
    assert told.stderr.count("\n") == 1


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", '"x"', '[\n "a",\n # b\n]', '"""\nseed = 1\n"""']))
)
def test_every_value_is_found_in_the_line_where_it_begins(values: dict[str, str]) -> None:
    text = "".join(f"# about {name} =\n{name} = {value}\n\n" for name, value in values.items())
    file = ConfigFile.parse(Path("c.toml"), text)
    for name in values:
        place, _, line = file.place(name).rpartition(":")
        assert text.splitlines()[int(line) - 1].startswith(f"{name} =")
        assert place == "c.toml"


def test_a_long_file_of_a_stranger_is_read_at_once(tmp_path: Path) -> None:
    text = 'seed = """\n' + "\n" * 90_000 + '"""\ntop_k = 1\n'
    file = ConfigFile.parse(tmp_path / "c.toml", text)
    before = time.perf_counter()
    file.place("top_k")
    many = ConfigFile.parse(tmp_path / "c.toml", "".join(f"a{number} = 1\n" for number in range(9_000)))
    assert many.place("a8999").endswith(":9000")
    assert time.perf_counter() - before < 5


def test_the_order_is_file_repository_environment_flags(folders: Folders, repository: Path) -> None:
    folders.file.write_text("seed = 1\ntop_k = 1\ntemperature = 1\nmin_p = 1\n")
    theirs(repository, "top_k = 2\ntemperature = 2\nmin_p = 0.5\n")
    loaded = load_with_origins(
        folders, {"KEEPWARM_TEMPERATURE": "3", "KEEPWARM_MIN_P": "0.3"}, {"min_p": 0}, repository
    )
    values = loaded.settings
    assert (values.seed, values.top_k, values.temperature, values.min_p) == (1, 2, 3.0, 0.0)
    kinds = [loaded.origins[name].kind for name in ("seed", "top_k", "temperature", "min_p", "mode")]
    assert kinds == ["user", "project", "environment", "flag", "default"]


@pytest.mark.parametrize("name", sorted({*NAMES, "endpoints"} - {*LOWERS, *ADDS, *SETS}))
def test_a_repository_may_not_set_what_costs_or_allows(folders: Folders, repository: Path, name: str) -> None:
    theirs(repository, f"seed = 1\n{name} = 1\n")
    with pytest.raises(UserError, match=rf"config\.toml:2 sets '{name}', which a repository may not") as caught:
        load(folders, {}, {}, repository)
    assert caught.value.exit_code == USAGE


def test_a_slip_in_a_repositorys_file_gets_a_suggestion(folders: Folders, repository: Path) -> None:
    theirs(repository, "temprature = 1\n")
    with pytest.raises(UserError, match="Did you mean 'temperature'"):
        load(folders, {}, {}, repository)


@pytest.mark.parametrize("name", LOWERS)
@pytest.mark.parametrize(("own", "project", "counts"), [(None, 9, 9), (500, 400, 400), (500, 600, 500)])
def test_a_repository_lowers_limits_and_never_raises_them(
    folders: Folders, repository: Path, name: str, own: int | None, project: int, counts: int
) -> None:
    folders.file.write_text("" if own is None else f"{name} = {own}\n")
    theirs(repository, f"{name} = {project}\n")
    loaded = load_with_origins(folders, {}, {}, repository)
    assert getattr(loaded.settings, name) == counts
    assert (loaded.origins[name].kind == "project") == (counts != own)


def test_a_repository_adds_rules_that_refuse_and_takes_none_away(folders: Folders, repository: Path) -> None:
    folders.file.write_text('permissions_deny = ["shell(rm *)"]\n', encoding="utf-8")
    theirs(repository, 'permissions_deny = ["edit(.github/**)"]\npermissions_ask = ["shell(git push *)"]\n')

    settings = load(folders, {}, {}, repository)

    assert settings.permissions_deny == ("shell(rm *)", "edit(.github/**)")
    assert settings.permissions_ask == ("shell(git push *)",)


def test_a_repositorys_file_counts_below_its_root_and_is_told(folders: Folders, repository: Path) -> None:
    path = theirs(repository, "seed = 7\n")
    (repository / "src").mkdir()
    assert load(folders, {}, {}, repository / "src").seed == 7
    notice = project_notice(repository / "src", folders)
    assert notice is not None
    assert f"{path} of this repository sets seed" in notice
    theirs(repository, "# nothing\n")
    assert project_notice(repository, folders) is None


def test_a_repository_cannot_lift_a_budget(folders: Folders, repository: Path) -> None:
    folders.file.write_text("max_cost_day = 5\n")
    theirs(repository, 'max_cost_day = "off"\n')
    assert load(folders, {}, {}, repository).max_cost_day == 5
    assert load(folders, {}, {"max_cost_day": "off"}, repository).max_cost_day is None


def test_a_strangers_link_is_not_followed(folders: Folders, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "else.toml").write_text("seed = 1\n")
    theirs(repository, "").unlink()
    (repository / ".keepwarm" / "config.toml").symlink_to(tmp_path / "else.toml")
    with pytest.raises(UserError, match="is no plain file"):
        load(folders, {}, {}, repository)


def test_ones_own_folder_is_no_repositorys(tmp_path: Path) -> None:
    own = Folders.find({"KEEPWARM_HOME": str(tmp_path / ".keepwarm")})
    own.config.mkdir()
    own.file.write_text('mode = "auto"\n')
    assert load(own, {}, {}, tmp_path).mode == "auto"


def test_setting_a_value_leaves_the_rest_alone(folders: Folders) -> None:
    folders.file.write_bytes(OWN.replace("\n", "\r\n").encode())
    os.chmod(folders.file, 0o640)
    assert set_value(folders, "mode", "edits") == '"edits"'
    assert set_value(folders, "max_cost", "0.50") == "0.50"
    set_value(folders, "endpoints.mine.parts", "true")
    text = folders.file.read_bytes().decode()
    for line in ('mode = "edits"  # careful', "# mine", "# the big one", "max_cost = 0.50", "parts = true"):
        assert f"{line}\r\n" in text
    assert folders.file.stat().st_mode & 0o777 == 0o640
    settings = load(folders, {}, {})
    assert (settings.mode, settings.max_cost) == ("edits", Decimal("0.5"))
    assert unset_value(folders, "max_cost")
    assert not unset_value(folders, "max_cost")
    assert load(folders, {}, {}).max_cost is None


VALUES: dict[str, list[str]] = {
    "mode": ["auto"],
    "model": ["local/a b", 'q"uote'],
    "max_cost": ["0.001", "12", "1e3"],
    "temperature": ["0.5", "0"],
    "seed": ["0", "12"],
    "exact": ["true", "off"],
    "dry_breakers": ['["\\n", "\\""]'],
    "keepalive_day": ["7"],
    "max_cost_day": ["2.5", "off"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in VALUES.items() for text in texts])
def test_what_is_set_is_what_the_environment_would_say(folders: Folders, name: str, text: str) -> None:
    set_value(folders, name, text)
    said: Any = getattr(load(folders, {f"KEEPWARM_{name.upper()}": text}, {}), name)
    assert getattr(load(folders, {}, {}), name) == said


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("moed", "plan", "Did you mean 'mode'"),
        ("mode", "yolo", "mode must be one of"),
        ("mode = 1\nseed", "2", "unknown setting"),
        ("endpoints.mine", "x", "is a table"),
        ("endpoints.new.parts", "true", "base_url is missing"),
        ("endpoints.mine.key_env", "sk-0123456789", "must name an environment variable"),
        ("endpoints.mine.base_url.x", "1", "cannot be set"),
    ],
)
def test_what_makes_no_sense_changes_nothing(folders: Folders, key: str, value: str, words: str) -> None:
    folders.file.write_text(OWN)
    with pytest.raises(UserError, match=words) as caught:
        set_value(folders, key, value)
    assert caught.value.exit_code == USAGE
    assert "sk-0123456789" not in str(caught.value)
    assert folders.file.read_text() == OWN


def test_a_link_to_dotfiles_stays_a_link(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "dot.toml").write_text(OWN)
    folders.file.symlink_to(tmp_path / "dot.toml")
    set_value(folders, "seed", "3")
    assert folders.file.is_symlink()
    assert "seed = 3" in (tmp_path / "dot.toml").read_text()


def test_the_first_setting_makes_the_file(home: Path, run_agent: RunAgent) -> None:
    there = {"KEEPWARM_HOME": str(home / "new"), "KEEPWARM_SEED": "9"}
    path = run_agent("config", "path", env=there).stdout.strip()
    told = run_agent("config", "set", "seed", "5", env=there)
    assert (told.returncode, told.stdout) == (0, "seed = 5\n")
    assert "KEEPWARM_SEED is set in the environment" in told.stderr
    assert Path(path).read_text() == "seed = 5\n"
    assert run_agent("config", "set", "presence_penalty", "-1", env=there).returncode == 0
    assert run_agent("config", "path", "--project").returncode == 1


def test_a_session_is_told_of_the_repositorys_file(
    repository: Path, run_agent: RunAgent, anthropic_server: Emulator
) -> None:
    theirs(repository, "max_turns = 3\n")
    anthropic_server.play(plan())
    told = run_agent("run", "hello", env=anthropic_server.env)
    assert "of this repository sets max_turns" in told.stderr
