"""Pasted text: harmless, kept aside when it is large, and known for an image when it is the path of one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.chat.paste import Pastes, harmless, images

TWENTY = "\n".join(f"line {number}" for number in range(20))


@pytest.mark.parametrize(
    ("pasted", "clean"),
    [
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("a\tb", "a\tb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b[201~rm -rf /\r", "rm -rf /\n"),
        ("a\x00\x03\x04\x08\x7f\x1ab", "ab"),
        ("\x9b31mred\x85", "red"),
        ("\x1b", ""),
        ("\udce4\udcbd\udca0", "你"),
        ("\udcff", "\N{REPLACEMENT CHARACTER}"),
        ("你好 👩‍👩‍👧 e\u0301", "你好 👩‍👩‍👧 e\u0301"),
    ],
)
def test_control_characters_are_made_harmless(pasted: str, clean: str) -> None:
    assert harmless(pasted) == clean


@given(st.text())
def test_harmless_text_commands_no_terminal(text: str) -> None:
    clean = harmless(text)
    assert not [char for char in clean if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"]
    assert harmless(clean) == clean
    clean.encode()


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (TWENTY, "[pasted #1: 20 lines]"),
        (TWENTY + "\n", "[pasted #1: 20 lines]"),
        ("x\n" * 11, "[pasted #1: 11 lines]"),
        ("x" * 1001, "[pasted #1: 1,001 characters]"),
        ("你" * 5000, "[pasted #1: 5,000 characters]"),
        ("x\n" * 10, None),
        ("x" * 1000, None),
    ],
)
def test_what_is_large(text: str, label: str | None) -> None:
    pastes = Pastes()
    put = pastes.put(text)
    assert (pastes.label(put) if len(put) == 1 else None) == label
    assert pastes.expand(f"before {put} after") == f"before {text} after"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])) | st.just(TWENTY)))
def test_pastes_come_back_in_place_whatever_is_in_them(texts: list[str]) -> None:
    pastes = Pastes()
    assert pastes.expand("|".join([pastes.put(text) for text in texts])) == "|".join(texts)


def test_a_character_that_could_stand_for_a_paste_is_itself() -> None:
    pastes = Pastes()
    first = pastes.put(TWENTY)
    icon = pastes.put(f"icon {first}")
    assert pastes.expand(icon) == f"icon {first}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{}/shot.png", ["shot.png"]),
        ("  {}/shot.png \n", ["shot.png"]),
        ("'{}/my shot.PNG'", ["my shot.PNG"]),
        ('"{}/my shot.PNG" {}/shot.png', ["my shot.PNG", "shot.png"]),
        ("{}/my\\ shot.PNG", ["my shot.PNG"]),
        ("{}/my shot.PNG", ["my shot.PNG"]),
        ("file://{}/my%20shot.PNG", ["my shot.PNG"]),
        ("{}/截图.webp\n{}/shot.png", ["截图.webp", "shot.png"]),
        ("shot.png", ["shot.png"]),
        ("look at {}/shot.png", []),
        ("{}/gone.png", []),
        ("{}/notes.txt", []),
        ("", []),
        ("it's", []),
    ],
)
def test_images_that_are_dropped(text: str, names: list[str], tmp_path: Path) -> None:
    for name in ("shot.png", "my shot.PNG", "截图.webp", "notes.txt"):
        (tmp_path / name).touch()
    assert images(text.replace("{}", str(tmp_path)), tmp_path) == [tmp_path / name for name in names]
