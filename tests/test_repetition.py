"""When a text goes round in circles: how soon that is noticed, what is kept, and which honest texts repeat too."""

import base64
import hashlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.repetition import Repetition


def watch(text: str, piece: int = 1) -> tuple[int, int] | None:
    """After how many characters a loop is noticed, and where the good part ends."""
    watcher = Repetition()
    for start in range(0, len(text), piece):
        if (good := watcher.feed(text[start : start + piece])) is not None:
            return min(start + piece, len(text)), good
    return None


PREFIX = "I have read calc.py and its test. Two things are wrong in it:\n\n"
PARAGRAPH = (
    "Let me look at the problem once more. The function takes two arguments and gives back their sum, but the test "
    "wants the product. So the operator must change. Then I run the tests.\n\n"
)
THOUGHT = (
    "Wait. If the list is empty, `max` raises ValueError, so the caller has to check that first. But the caller is "
    "the loop in report(), which never sees an empty list. Unless the filter drops all of it.\n"
    "Then again, the filter keeps the header. So it cannot be empty.\n\n"
)
LONG_THOUGHT = THOUGHT + "".join(
    f"Then there is the case of the {word}, in which the {word} is not there yet when the report is made. "
    for word in ("file", "folder", "header", "footer", "column", "separator", "user", "group", "owner", "price")
)

# What repeats, and how many times it may be said until it is noticed.
LOOPS = {
    "one character": ("a", 432),
    "one token": (" the", 108),
    "two tokens": ("ha ho ", 75),
    "emoji": ("😀", 432),
    "emoji of several code points": ("👩‍👧 ", 110),
    "汉字": ("汉字", 216),
    "phrase": ("and then the same again, ", 18),
    "sentence": ("I will check the file again. ", 15),
    "sentence of another script": ("我再检查一次这个文件。", 40),
    "line": ("Now I run the tests.\n", 21),
    "paragraph": (PARAGRAPH, 4),
    "thought": (THOUGHT, 4),
    "long thought": (LONG_THOUGHT, 4),
    "line of a tool call": (r"    total = total + price\n", 50),
    "row": ("| a | b |\n", 124),
    "blank lines": ("\n", 532),
    "digits": ("1.", 266),  # what SmolLM2 says to "Write the word ha 500 times"
    "tool call said as text": ('{"tool":"read","args":{"path":"calc.py"}}\n', 32),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_noticed_and_the_good_part_kept(name: str) -> None:
    """Field report 125."""
    unit, most = LOOPS[name]
    found = watch(PREFIX + unit * 2_000 if len(unit) < 50 else PREFIX + unit * 20)
    assert found is not None
    noticed, good = found
    assert noticed <= len(PREFIX) + most * len(unit)
    kept = (PREFIX + unit * 3)[:good]
    assert (PREFIX + unit).rstrip() in kept
    assert len(kept) <= len(PREFIX) + 2 * len(unit)


NUMBERED = {
    "steps": "Step {}: I will check the file again.\n",
    "one line": "Attempt {} failed, so I try it once more. ",
    "another script": "第{}步：我再检查一次这个文件，然后运行测试。\n",
    "words for numbers": "第{}步：再看一遍。\n",
    "paragraph": "Iteration {}. " + PARAGRAPH,
    "tool call": r"# Note {}: remember to check the value here.\n",
}


@pytest.mark.parametrize("name", NUMBERED)
def test_a_counter_does_not_hide_a_loop(name: str) -> None:
    digits = "一二三四五六七八九"
    in_words = [f"{a}百{b}十{c}" for a in digits for b in digits for c in digits]
    numbers = in_words if name == "words for numbers" else [str(number) for number in range(7, 600)]
    said = [NUMBERED[name].format(number) for number in numbers]
    found = watch(PREFIX + "".join(said))
    assert found is not None
    noticed, good = found
    longest = max(map(len, said))
    shortest = longest - max(map(len, numbers)) + 1  # a number counts for one character, whatever its length
    assert noticed <= len(PREFIX) + max(1_500 * longest // shortest, 4 * longest) + 3 * longest
    kept = (PREFIX + "".join(said))[:good]
    assert kept.startswith(PREFIX)
    assert kept.rstrip() == (PREFIX + said[0]).rstrip()


def test_one_token_400_times_is_cut_behind_the_first() -> None:
    """Field report 125."""
    found = watch("The answer is" + " yes" * 400)
    assert found is not None
    noticed, good = found
    assert noticed < 500
    assert ("The answer is" + " yes" * 400)[:good].rstrip() == "The answer is yes"


LICENCE = (
    '# Licensed under the Apache License, Version 2.0 (the "License");\n'
    "# you may not use this file except in compliance with the License.\n"
    "# Unless required by applicable law or agreed to in writing, software\n"
    '# distributed under the License is distributed on an "AS IS" BASIS.\n\n'
)
WORDS = ["amount", "balance", "city", "date", "email", "first", "group", "height", "joined", "key", "last", "member"]

HONEST = {
    "a log": "".join(f"2026-12-03 10:{n // 60:02}:{n % 60:02} INFO worker {n} has started\n" for n in range(300)),
    "eight like edits": "".join(f"I changed `{a}.py`: the import of `old` is now one of `new`.\n" for a in WORDS[:8]),
    "twenty numbered findings": "".join(f"- Line {n}: removed trailing whitespace.\n" for n in range(3, 63, 3)),
    "table": "| a | b | c |\n|---|---|---|\n" + "".join(f"| {a} | {b} | yes |\n" for a in WORDS for b in "xyz"),
    "table of numbers": "".join(f"| {n} | the value is right | {n * n} |\n" for n in range(200)),
    "table's line": "|" + "---|" * 40,
    "json array": json.dumps([{"id": n, "name": f"item {n}", "enabled": True} for n in range(200)]),
    "json array of equal objects": "[" + ", ".join(['{"x": 0, "y": 0, "on": true}'] * 30) + "]",
    "pretty json": json.dumps([{"id": n, "tags": [], "parent": None} for n in range(100)], indent=2),
    "yaml": "".join(f"- name: item {n}\n  value: {n * 3}\n  enabled: true\n" for n in range(150)),
    "csv of equal rows": "2026-12-01,widget,10,0.00,ok\n" * 36,
    "csv": "".join(f"{n},{n % 7},{n * 3},ok\n" for n in range(1_000)),
    "rulers": ("-" * 300 + "\n" + "=" * 300 + "\n") + "Title\n" + "*" * 120 + "\n" + "─" * 200 + "\n" + "#" * 100,
    "ascii art": "+" + "-" * 60 + "+\n" + ("|" + " " * 60 + "|\n") * 12 + "+" + "-" * 60 + "+\n" + "/\\" * 40,
    "tree": "".join(f"│   ├── {a}_{b}.py\n" for a in WORDS for b in WORDS[:4]),
    "base64": base64.b64encode(bytes(range(256)) * 4 + bytes(200)).decode(),
    "hex": b"".join(hashlib.sha256(bytes([n])).digest() for n in range(60)).hex(" ") + "00 " * 128,
    "bytes": "uint8_t zero[] = {" + "0x00, " * 128 + "};\nint table[] = {" + "0, " * 256 + "};",
    "licence headers": "".join(f"## {word}.py\n\n{LICENCE}def {word}() -> None: ...\n\n" for word in WORDS),
    "sixty imports": "".join(f"from package.module{n} import Thing{n}\n" for n in range(60)),
    "sixty plain imports": "".join(f"import {a}.{b}\n" for a in WORDS[:8] for b in WORDS[:8]),
    "tests": '@pytest.mark.parametrize(("a", "sum"), [\n' + "".join(f"    ({n}, 2, {n + 2}),\n" for n in range(300)),
    "asserts": "".join(f"    assert add({n}, 1) == {n + 1}\n" for n in range(200)),
    "svg path": '<path d="M0 0' + "".join(f" L{n} {n % 9} l 1 0 l 0 1" for n in range(300)) + ' Z"/>',
    "svg steps": '<path d="M0 0' + " l 1 0 l 0 1" * 80 + ' Z"/>',
    "closing braces": "".join("    " * depth + "}\n" for depth in range(20, -1, -1)) + "}\n" * 40,
    "closing tags": "</div>\n" * 60,
    "check list": "- [ ] to do\n" * 60,
    "numbers": "\n".join(str(n) for n in range(1, 1_500)),
    "fizz buzz": "\n".join("Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n) for n in range(1, 101)),
    "log": "".join(f"[{n:05}] GET /items/{n} 200 {n % 13} ms\n" for n in range(400)),
    "sql": "".join(f"INSERT INTO item (id, name) VALUES ({n}, 'item {n}');\n" for n in range(200)),
    "a verse with its refrain": "".join(f"About the {word} I sing.\nSing it again, my friend!\n\n" for word in WORDS),
    "a paragraph said twice": PARAGRAPH * 2 + "That was the same twice, and I stop here.",
    "diff": "".join(f"--- a/{w}.py\n+++ b/{w}.py\n@@ -1 +1 @@\n-import old\n+import new\n" for w in WORDS),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_repetition_passes(name: str) -> None:
    """Field report 123."""
    assert watch(HONEST[name]) is None
    assert watch(json.dumps(HONEST[name])) is None, "as the argument of a call"
    assert watch(PREFIX + HONEST[name] + "\n" + HONEST[name]) is None


# A unit that is prose, and text before it that does not end as the unit does.
units = st.text("abcdefgh .,!汉字😀\n", min_size=1, max_size=300).filter(lambda unit: unit.strip(" .,!\n") != "")
prefixes = st.text("xyz(){}12 \n", max_size=200).map(lambda prefix: prefix + "#")


@given(prefixes, units)
def test_every_loop_is_found_and_its_first_period_kept(prefix: str, unit: str) -> None:
    text = prefix + unit * (1_600 // len(unit) + 5)
    found = watch(text)
    assert found is not None
    noticed, good = found
    assert noticed <= len(prefix) + max(3 * len(unit), 1_200) + max(len(unit), 64)
    assert len(prefix) < good <= len(prefix) + 2 * len(unit)
    assert text[:good].startswith(prefix)


@given(st.data(), prefixes, units, st.integers(1, 40))
def test_the_pieces_make_no_difference(data: st.DataObject, prefix: str, unit: str, times: int) -> None:
    text = prefix + unit * times
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    watcher = Repetition()
    found = None
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found = watcher.feed(text[start:end])
    whole = watch(text)
    assert found == (whole[1] if whole else None)


def test_a_loop_behind_much_honest_text_is_found_and_costs_no_more() -> None:
    rows = "".join(f"{n},{n * n % 1_000},{n % 7}\n" for n in range(20_000))
    started = time.thread_time()
    found = watch(rows + PARAGRAPH * 5, piece=4)
    seconds = time.thread_time() - started
    assert found is not None
    assert (rows + PARAGRAPH * 5)[: found[1]].rstrip() == (rows + PARAGRAPH).rstrip()
    assert seconds < 50e-6 * len(rows), "50 µs a character is a tenth of what the fastest model takes for one"
