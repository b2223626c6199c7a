"""When a call is made again; settings from file, environment and flags; sums that know what is unknown."""

from decimal import Decimal
from pathlib import Path

import pytest

from agent.backend_choice import sampling_of
from agent.config import Folders, load
from agent.errors import UserError
from agent.reports.totals import Totals, money, percent
from agent.retry import MAX_ATTEMPTS, wait_before_retry
from backends.base import BackendError, ErrorKind, Usage
from backends.llama.sampling import Sampling


@pytest.mark.parametrize(
    ("kind", "retry_after", "attempt", "expected"),
    [
        (ErrorKind.OVERLOADED, None, 1, 0.5),
        (ErrorKind.OVERLOADED, None, 4, 4.0),
        (ErrorKind.NETWORK, None, 7, 30.0),
        (ErrorKind.RATE_LIMIT, 90.0, 1, 90.0),
        (ErrorKind.RATE_LIMIT, 0.0, 1, 0.0),
        (ErrorKind.RATE_LIMIT, 3600.0, 1, None),
        (ErrorKind.SERVER, None, MAX_ATTEMPTS, None),
        (ErrorKind.AUTH, None, 1, None),
        (ErrorKind.OVERFLOW, None, 1, None),
        (ErrorKind.BILLING, 5.0, 1, None),
    ],
)
def test_waits(kind: ErrorKind, retry_after: float | None, attempt: int, expected: float | None) -> None:
    error = BackendError(kind, "x", retry_after=retry_after)
    assert wait_before_retry(error, attempt, jitter=0.0) == expected


def folders(path: Path) -> Folders:
    return Folders.find({"KEEPWARM_HOME": str(path)})


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('model = "local/a"\nmode = "plan"\nmax_turns = 3\nmax_cost = 0.10\n')
    env = {"KEEPWARM_MODE": "edits", "KEEPWARM_MAX_TURNS": "5"}
    settings = load(folders(tmp_path), env, {"max_turns": 7})
    assert (settings.model, settings.mode, settings.max_turns) == ("local/a", "edits", 7)
    assert settings.max_cost == Decimal("0.1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "yolo"),
        ("max_turns", 0),
        ("max_turns", "many"),
        ("max_turns", True),
        ("max_cost", "-1"),
        ("model", " "),
    ],
)
def test_a_bad_value_names_its_place(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(UserError, match=name) as caught:
        load(folders(tmp_path), {}, {name: value})
    assert caught.value.exit_code == 2


def test_one_unknown_summand_makes_the_sum_unknown() -> None:
    known = Usage(fresh=10, cache_read=90, cache_write=0, output=5)
    total = Totals().plus(known, Decimal("0.5")).plus(known, None)
    assert (total.fresh, total.cache_read, total.cost_usd) == (20, 180, None)
    assert total.hit_rate == 0.9
    assert Totals().plus(Usage(fresh=10, output=5), None).hit_rate is None
    assert (money(None), money(Decimal(0)), percent(None)) == ("unknown price", "$0.0000", "unknown")


def test_sampling_is_set_in_file_and_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('temperature = 0.8\ntop_k = 0\ndry_breakers = ["\\n", ";"]\n')
    env = {"KEEPWARM_XTC_PROBABILITY": "0.5", "KEEPWARM_SEED": "0", "KEEPWARM_PRESENCE_PENALTY": "-1"}
    sampling = sampling_of(load(folders(tmp_path), env, {}))
    assert (sampling.temperature, sampling.top_k, sampling.dry_breakers) == (0.8, 0, ("\n", ";"))
    assert (sampling.xtc_probability, sampling.seed, sampling.presence) == (0.5, 0, -1.0)
    assert sampling_of(load(folders(tmp_path), {"KEEPWARM_DRY_BREAKERS": '["."]'}, {})).dry_breakers == (".",)


def test_sampling_is_off_where_nothing_is_set(tmp_path: Path) -> None:
    assert sampling_of(load(folders(tmp_path), {}, {})) == Sampling()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", "-0.1"), ("temperature", "warm"), ("temperature", "nan"), ("top_p", 1.5)),
        *(("min_p", True), ("top_k", 2.5), ("dry_breakers", "x"), ("dry_breakers", [""]), ("dry_window", 0)),
    ],
)
def test_a_bad_value_of_sampling_names_its_place(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(UserError, match=name):
        load(folders(tmp_path), {}, {name: value})
