"""`agent models pull ORG/NAME:QUANT` against a hub on loopback: which file is meant, split files, cuts, tokens."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from gguf_support import TINY, header
from models_support import FakeHub, serving

from backends.llama.fetch import FetchProgress, fetch_all
from backends.llama.hub import find_on_hub
from backends.llama.models import HubName, ModelError, ModelSpec, note_pulled, pulled_models, resolve
from backends.llama.quants import QuantError, choose, label_of, offered
from backends.llama.sources import HubSource, Source
from backends.llama.verify import FileState, check

PARTS = {
    f"Q4_K_M/tiny-Q4_K_M-{n:05}-of-00003.gguf": (header(TINY) if n == 1 else header({})) + bytes([n]) * 2_500_000
    for n in (1, 2, 3)
}
SMALL = header(TINY) + bytes(1_000)
TOKEN = "hf_" + "x" * 20
NAME = HubName("someone/tiny-GGUF", "q4_k_m")


def pull(models: Path, *arguments: str, hub: FakeHub | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    """`agent models` with a hub, in a process of its own."""
    settings = {"KEEPWARM_MODELS_DIR": str(models), "HF_ENDPOINT": hub.endpoint if hub else "http://127.0.0.1:1"}
    settings |= {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "", "HF_TOKEN": TOKEN, "HOME": str(models.parent)}
    command = [sys.executable, str(ROOT / "keepwarm.py"), "models", *arguments]
    return subprocess.run(command, env=os.environ | settings | env, capture_output=True, text=True, timeout=60)


async def take(hub: FakeHub, models: Path, **more: object) -> Path:
    """Pull Q4_K_M inside this process."""
    spec = await find_on_hub(NAME, hub.endpoint)
    note_pulled(spec, models)

    def sources_of(file: ModelSpec) -> list[Source]:
        assert file.hub is not None
        return [HubSource(file, file.hub, hub.endpoint)]

    return await fetch_all(spec, models, sources_of, **more)  # type: ignore[arg-type]


def test_pull_list_show_and_pull_again_without_network(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with serving(FakeHub(files={**PARTS, "tiny-Q8_0.gguf": SMALL, "mmproj-tiny-f16.gguf": SMALL})) as hub:
        done = pull(models, "pull", "someone/tiny-GGUF:q4_k_m", hub=hub)
        assert done.returncode == 0, done.stderr
        first = models / "someone/tiny-GGUF" / next(iter(PARTS))
        assert done.stdout == f"{first}\n"
        assert "--model local/someone/tiny-GGUF:Q4_K_M" in done.stderr
        for path, data in PARTS.items():
            assert (models / "someone/tiny-GGUF" / path).read_bytes() == data
        assert TOKEN not in done.stdout + done.stderr
        assert {token for _, token in hub.asked} == {f"Bearer {TOKEN}"}
    again = pull(models, "pull", "Someone/Tiny-gguf:Q4_K_M")
    assert again.stdout == done.stdout, again.stderr
    shown = json.loads(pull(models, "show", "someone/tiny-GGUF", "--json").stdout)
    assert (shown["model"], shown["state"]) == ("local/someone/tiny-GGUF:Q4_K_M", "verified")
    assert (shown["says"]["parts"], shown["says"]["kind"]) == (3, "attention")
    assert [(need["context"], need["kv_type"]) for need in shown["needs"]] == [
        (size, kv_type) for size in (4_096, 8_192) for kv_type in ("f16", "q8_0")
    ]
    assert "local/someone/tiny-GGUF:Q4_K_M" in pull(models, "list").stdout
    assert "3 files" in pull(models, "show", str(first)).stdout


async def test_a_cut_in_the_middle_goes_on_at_the_byte_in_the_part(tmp_path: Path) -> None:
    with serving(FakeHub(files=PARTS)) as hub:

        def stop(now: FetchProgress) -> None:
            if now.done > 3_000_000:
                task.cancel()

        task = asyncio.create_task(take(hub, tmp_path, progress=stop))
        with pytest.raises(asyncio.CancelledError):
            await task
        kept = next((tmp_path / "someone/tiny-GGUF/Q4_K_M").glob("*00002*.part")).stat().st_size
        hub.ranges.clear()
        seen: list[FetchProgress] = []
        path = await take(hub, tmp_path, progress=seen.append)
        wanted = (
            ["bytes=0-"]
            if kept == len(PARTS["Q4_K_M/tiny-Q4_K_M-00002-of-00003.gguf"])
            else [f"bytes={kept}-", "bytes=0-"]
        )
        assert hub.ranges == wanted
        assert seen[-1].done == seen[-1].total == sum(map(len, PARTS.values()))
        assert [now.done for now in seen] == sorted(now.done for now in seen)
    assert path.read_bytes() == PARTS["Q4_K_M/tiny-Q4_K_M-00001-of-00003.gguf"]


async def test_a_file_that_changed_at_the_hub_begins_anew(tmp_path: Path) -> None:
    old, new = header(TINY) + b"a" * 500_000, header(TINY) + b"b" * 500_000
    with serving(FakeHub(files={"x-Q4_K_M.gguf": old}, hold_at=100_000)) as hub:
        folder = tmp_path / "someone/tiny-GGUF"
        folder.mkdir(parents=True)
        left = folder / f"x-Q4_K_M.gguf.{hashlib.sha256(old).hexdigest()[:8]}.part"
        left.write_bytes(old[:100_000])
        hub.hold_at, hub.files = None, {"x-Q4_K_M.gguf": new}
        said: list[str] = []
        path = await take(hub, tmp_path, announce=said.append)
        assert hub.ranges == ["bytes=0-"]
    assert path.read_bytes() == new
    assert not left.exists()
    assert said == [f"{left.name} was begun of another file of that name: 100 kB were removed."]


async def test_a_wrong_hash_never_gets_its_name(tmp_path: Path) -> None:
    data = header(TINY) + b"a" * 1_000
    lies = [{"type": "file", "path": "x-Q4_K_M.gguf", "size": len(data), "lfs": {"oid": "0" * 64}}]
    hub = FakeHub(files={"x-Q4_K_M.gguf": data}, listed=lies)
    with serving(hub), pytest.raises(ModelError, match=r"SHA-256 differs.*Nothing was kept"):
        await take(hub, tmp_path)
    model = resolve("local/someone/tiny-GGUF:Q4_K_M", tmp_path)
    assert not model.present
    assert check(model, tmp_path) is FileState.MISSING


@pytest.mark.parametrize("token", [TOKEN, ""])
@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_says_what_to_do(tmp_path: Path, status: int, token: str) -> None:
    with serving(FakeHub(files={"x-Q4_K_M.gguf": SMALL}, status=status, error_code="GatedRepo")) as hub:
        done = pull(tmp_path / "m", "pull", "someone/tiny-GGUF", hub=hub, HF_TOKEN=token)
    assert done.returncode == 1
    assert "someone/tiny-GGUF is gated" in done.stderr
    assert "accept its terms on 127.0.0.1/someone/tiny-GGUF" in done.stderr
    assert ("HF_TOKEN gives no access" in done.stderr) == bool(token)
    assert TOKEN not in done.stderr


@pytest.mark.parametrize(("status", "code"), [(401, "RepoNotFound"), (404, "RepoNotFound"), (401, ""), (503, "")])
async def test_a_repository_that_is_not_there(status: int, code: str) -> None:
    with serving(FakeHub(list_status=status, error_code=code)) as hub, pytest.raises(ModelError) as caught:
        await find_on_hub(NAME, hub.endpoint)
    assert ("HTTP 503" if status == 503 else "there is no someone/tiny-GGUF") in str(caught.value)
    assert str(caught.value).endswith("Nothing was downloaded.")


def test_the_token_does_not_go_to_the_host_of_the_files(tmp_path: Path) -> None:
    with serving(FakeHub(files={"x-Q4_K_M.gguf": SMALL})) as cdn:
        with serving(FakeHub(files={"x-Q4_K_M.gguf": SMALL}, cdn=cdn)) as hub:
            done = pull(tmp_path / "m", "pull", "someone/tiny-GGUF:Q4_K_M", hub=hub)
            assert done.returncode == 0, done.stderr
            assert {token for _, token in hub.asked} == {f"Bearer {TOKEN}"}
        assert [token for _, token in cdn.asked] == [None]


def test_a_token_that_is_none_is_not_quoted(tmp_path: Path) -> None:
    with serving(FakeHub(files={"x-Q4_K_M.gguf": SMALL})) as hub:
        done = pull(tmp_path / "m", "pull", "someone/tiny-GGUF", hub=hub, HF_TOKEN="hf_se cret\u00e9")
    assert done.returncode == 1
    assert "HF_TOKEN holds characters" in done.stderr
    assert "cret" not in done.stderr
    assert hub.asked == []


def test_no_network_is_one_line(tmp_path: Path) -> None:
    done = pull(tmp_path / "m", "pull", "someone/tiny-GGUF:Q4_K_M")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "the hub cannot be reached" in done.stderr


async def test_a_disk_that_is_too_small_for_all_parts_is_said_before_the_first(tmp_path: Path) -> None:
    with serving(FakeHub(files=PARTS)) as hub:
        with pytest.raises(ModelError, match=r"needs 24 MB of disk space .* 18 MB are free"):
            await take(hub, tmp_path, disk_free=lambda _: 18_000_000)
        assert hub.ranges == []


def test_two_pulls_at_once_fetch_each_file_once(tmp_path: Path) -> None:
    with serving(FakeHub(files=PARTS)) as hub:
        env = os.environ | {"KEEPWARM_MODELS_DIR": str(tmp_path / "m"), "HF_ENDPOINT": hub.endpoint}
        command = [sys.executable, str(ROOT / "keepwarm.py"), "models", "pull", "someone/tiny-GGUF:Q4_K_M"]
        both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        for process in both:
            process.communicate(timeout=60)
        assert [process.returncode for process in both] == [0, 0]
        assert hub.ranges == ["bytes=0-"] * 3


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "file", "path": "../../x-Q4_K_M.gguf", "size": 9, "lfs": {"oid": "0" * 64}},
        {"type": "file", "path": "/tmp/x-Q4_K_M.gguf", "size": 9, "lfs": {"oid": "0" * 64}},
        {"type": "file", "path": "a\\x-Q4_K_M.gguf", "size": 9, "lfs": {"oid": "0" * 64}},
        {"type": "file", "path": "x-Q4_K_M.gguf", "size": -1, "lfs": {"oid": "0" * 64}},
        {"type": "file", "path": "x-Q4_K_M.gguf", "size": 9, "lfs": {"oid": "../x"}},
        {"type": "file", "path": "x-Q4_K_M.gguf", "size": 9},
        {"type": "file", "path": 7},
        None,
    ],
)
async def test_a_file_list_that_is_wrong_or_malicious_leads_to_nothing(entry: object) -> None:
    for listed in ([entry], {"error": entry}, [[entry]]):
        with serving(FakeHub(listed=listed)) as hub, pytest.raises(ModelError, match="Nothing was downloaded"):
            await find_on_hub(NAME, hub.endpoint)


FILES = ["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "m-UD-Q2_K_XL.gguf", "a/n-q8_0.gguf", "b/n-Q8_0.gguf", "odd.gguf"]


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("UD-q4_K_m", "m-UD-Q4_K_M.gguf"),
        ("q2_k_xl", "m-UD-Q2_K_XL.gguf"),
        ("odd.gguf", "odd.gguf"),
        ("a/n-q8_0.gguf", "a/n-q8_0.gguf"),
    ],
)
def test_a_quantisation_is_chosen_in_any_case_of_letters(wanted: str, path: str) -> None:
    assert choose(offered(FILES), wanted).paths == (path,)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("Q8_0", "2 models of Q8_0, so name the file behind the colon: a/n-q8_0.gguf, b/n-Q8_0.gguf"),
        ("Q5_K_M", "it has no Q5_K_M. There are: Q4_K_M, Q8_0, UD-Q2_K_XL, UD-Q4_K_M, odd.gguf"),
        (None, "several models, so name one behind a colon: Q4_K_M"),
    ],
)
def test_what_is_not_one_model_is_answered_with_what_there_is(wanted: str | None, said: str) -> None:
    with pytest.raises(QuantError, match=said):
        choose(offered(FILES), wanted)


def test_labels() -> None:
    names = [
        "x-Q4_K_M.gguf",
        "x.IQ3_XXS.gguf",
        "x_q5_0.gguf",
        "BF16/x-00001-of-00002.gguf",
        "x-mxfp4.gguf",
        "x-7b.gguf",
    ]
    assert [label_of(name) for name in names] == ["Q4_K_M", "IQ3_XXS", "Q5_0", "BF16", "MXFP4", "x-7b.gguf"]


def test_a_split_model_with_a_part_missing_is_not_offered() -> None:
    assert offered(["x-Q4_0-00001-of-00002.gguf"]) == []
    assert offered(["x-Q4_0-00001-of-99999.gguf", "x-Q4_0-00002-of-99999.gguf"]) == []


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"name": 1}', "{", '{"name": "a/b:c", "rest": 7}'])
def test_a_damaged_note_only_makes_us_ask_the_hub_again(tmp_path: Path, note: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/x.gguf.json").write_text(note)
    assert pulled_models(tmp_path) == []
    assert not resolve("local/a/b:c", tmp_path).present


def test_names() -> None:
    assert HubName.parse("local/a/b.c-GGUF:Q4_0") == HubName("a/b.c-GGUF", "Q4_0")
    assert HubName.parse("a/b") == HubName("a/b")
    for no_name in ("local/qwen", "a/b/c", "../b", "a/..", "a/b..c", "/a/b", "a/b:", "local:/a/b"):
        assert HubName.parse(no_name) is None, no_name


def test_a_model_that_is_removed_leaves_nothing_and_can_be_fetched_again(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with serving(FakeHub(files={**PARTS, "tiny-Q8_0.gguf": SMALL})) as hub:
        for quant in ("Q4_K_M", "Q8_0"):
            assert pull(models, "pull", f"someone/tiny-GGUF:{quant}", hub=hub).returncode == 0
        cut = models / "someone/tiny-GGUF" / f"{next(iter(PARTS))}.0123.part"
        cut.write_bytes(b"x" * 10)
        done = pull(models, "rm", "someone/tiny-GGUF:q4_k_m")
        assert (done.returncode, done.stderr) == (0, "")
        assert "8 MB" in done.stdout
        kept = sorted(path.name for path in models.rglob("*") if path.suffix in (".gguf", ".json", ".part"))
        assert kept == ["tiny-Q8_0.gguf", "tiny-Q8_0.gguf.json", "verified.json"]
        again = pull(models, "rm", "someone/tiny-GGUF:q4_k_m")
        assert again.returncode == 2
        assert "is not on this machine" in again.stderr
        assert pull(models, "pull", "someone/tiny-GGUF:Q4_K_M", hub=hub).returncode == 0


@pytest.mark.parametrize("name", ["local/qwen2.5-coder-1.5", "qwen2.5-coder-1.5"])
@pytest.mark.parametrize("command", ["rm", "pull"])
def test_an_unknown_name_is_a_slip_of_usage(tmp_path: Path, command: str, name: str) -> None:
    done = pull(tmp_path / "m", command, name)
    assert done.returncode == 2
    assert "Did you mean local/qwen2.5-coder-1.5b?" in done.stderr


def test_ones_own_file_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(SMALL)
    done = pull(tmp_path / "m", "rm", f"local:{tmp_path}/x.gguf")
    assert done.returncode == 2
    assert (tmp_path / "x.gguf").exists()
