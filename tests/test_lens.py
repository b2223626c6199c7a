"""The lens on logits made up here: what it says of a token, of a reply, and how that is shown."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from agent.lens_pages import LensPages
from agent.reports.lens import LensReport, percent, text_of
from agent.reports.lens_html import lens_page
from agent.reports.lens_text import print_lens
from backends.llama.lens import (
    Candidate,
    Cut,
    Look,
    Recorder,
    Run,
    Seen,
    forced_runs,
    look,
    most_doubtful,
    sure_runs,
)
from backends.llama.lens_run import Branch
from backends.llama.pieces import groups
from backends.llama.sampling import Sampler, Sampling
from backends.llama.weights import Weights

pytest_plugins = ["local_models"]

Logits = np.ndarray[tuple[int], np.dtype[np.float32]]


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Weights]:
    weights = Weights.load(smollm2_path)
    yield weights
    weights.close()


def name(token: int) -> bytes:
    return b"t%d" % token


def chances(*probabilities: float, size: int = 50) -> Logits:
    """Logits of a vocabulary in which the first tokens have these probabilities, and the others next to none."""
    values: Logits = np.full(size, -60.0, dtype=np.float32)
    values[: len(probabilities)] = np.log(probabilities)
    return values


@pytest.mark.parametrize("ways", [1, 2, 4, 32])
def test_entropy_is_the_bits_of_an_even_choice(ways: int) -> None:
    seen = look(chances(*[1 / ways] * ways), (), 0, name)
    assert seen.entropy == pytest.approx(np.log2(ways), abs=1e-5)
    assert seen.drawn.probability == pytest.approx(1 / ways)


def test_a_token_is_told_with_its_rank_and_what_was_likelier() -> None:
    seen = look(chances(0.2, 0.5, 0.3), (), 0, name)
    assert (seen.drawn.piece, seen.drawn.rank) == (b"t0", 3)
    assert [candidate.piece for candidate in seen.best[:3]] == [b"t1", b"t2", b"t0"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-30, 30, width=32), min_size=6, max_size=80), st.data())
def test_probabilities_and_ranks_are_those_of_the_softmax(values: list[float], data: st.DataObject) -> None:
    logits: Logits = np.array(values, dtype=np.float32)
    token = data.draw(st.integers(0, len(values) - 1))
    seen = look(logits, (), token, name)
    powers = [2.718281828459045 ** (float(value) - max(values)) for value in logits]
    shares = [power / sum(powers) for power in powers]
    assert seen.drawn.probability == pytest.approx(shares[token], rel=1e-6)
    assert seen.entropy == pytest.approx(-sum(share * np.log2(share) for share in shares if share), abs=1e-6)
    assert seen.drawn.rank == 1 + sum(value > logits[token] for value in logits)
    assert [candidate.logit for candidate in seen.best] == sorted(logits.tolist(), reverse=True)[:5]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 60),
    st.floats(0.3, 0.99),
    st.floats(0.01, 0.3),
    st.floats(0.3, 2.0),
)
def test_cuts_and_temperature_are_those_of_the_definitions(
    smollm2: Weights, seed: int, top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    """Against the filters written once more, from their papers."""
    spread = np.random.default_rng(seed)
    logits = np.asarray(spread.normal(0, 4, smollm2.size), dtype=np.float32)
    control = [token for token in range(64) if smollm2.is_control(token)]
    logits[control] = -50
    recorder = Recorder(smollm2.piece)
    sampling = Sampling(temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    with Sampler(smollm2, sampling, watch=recorder.watch) as sampler:
        token = sampler.sample(logits)
    recorder.drew(logits, token)
    (seen,) = recorder.looks

    order = np.argsort(-logits, kind="stable")
    by_k = order[:top_k]
    shares = softmax(logits[by_k])
    edge = np.cumsum(shares)
    by_p = by_k[: int(np.argmax(edge >= top_p)) + 1] if (edge >= top_p).any() else by_k
    by_min = by_p[logits[by_p] >= logits[by_p[0]] + np.log(min_p)]
    near = min(abs(edge - top_p).min(), abs(logits[by_p] - logits[by_p[0]] - np.log(min_p)).min())
    if near < 1e-4:  # 32 and 64 bits may differ on what is exactly at the edge
        return
    kept = [len(by_k), len(by_p), len(by_min)]
    assert [(cut.name, cut.after) for cut in seen.cuts] == list(zip(("top-k", "top-p", "min-p"), kept, strict=True))
    assert seen.cuts[0].before == smollm2.size
    for cut in seen.cuts:
        assert cut.kept.rank == cut.after
        assert (cut.dropped.rank if cut.dropped else None) == (cut.after + 1 if cut.before > cut.after else None)
    place = by_min.tolist().index(token)
    assert seen.before_temperature == pytest.approx(softmax(logits[by_min])[place], rel=1e-4)
    assert seen.after_temperature == pytest.approx(softmax(logits[by_min] / temperature)[place], rel=1e-3)


def softmax(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    powers = np.exp(values.astype(np.float64) - values.max())
    return np.asarray(powers / powers.sum())


def test_what_penalties_took_is_told(smollm2: Weights) -> None:
    recorder = Recorder(smollm2.piece)
    logits = np.zeros(smollm2.size, dtype=np.float32)
    logits[500] = 9
    with Sampler(smollm2, Sampling(presence=1.5), watch=recorder.watch) as sampler:
        for _ in range(2):
            recorder.drew(logits, sampler.sample(logits))
    assert [seen.penalty for seen in recorder.looks] == [0.0, 1.5]


def test_xtc_tells_the_top_choice_that_it_left_out(smollm2: Weights) -> None:
    recorder = Recorder(smollm2.piece)
    logits = np.zeros(smollm2.size, dtype=np.float32)
    logits[[500, 501, 502]] = (20, 19.5, 19)
    with Sampler(smollm2, Sampling(1.0, xtc_probability=1.0), watch=recorder.watch) as sampler:
        recorder.drew(logits, sampler.sample(logits))
    cut = recorder.looks[0].cuts[-1]
    assert cut.dropped is not None
    assert (cut.name, cut.before, cut.after, cut.kept.token, cut.dropped.token) == ("XTC", 3, 1, 502, 501)


# A whole reply


def drawn(piece: bytes, probability: float, *others: tuple[bytes, float]) -> Look:
    """A look at a token of that probability, with the others that could have come."""
    ways = [(piece, probability), *others]
    ranked = sorted(ways, key=lambda way: -way[1])
    found = [Candidate(rank, way[0], 20 * way[1], way[1], rank) for rank, way in enumerate(ranked, 1)]
    entropy = -sum(way[1] * np.log2(way[1]) for way in ways)
    return Look(found[ranked.index(ways[0])], float(entropy), tuple(found[:5]))


def reply(*looks: Look, ended: bool = True, given: str = "{") -> Seen:
    return Seen(1234, 1200, 0, 0.25, looks, ended, given)


HUO, GUO = "火".encode(), "锅".encode()
HOT_POT = reply(
    drawn(b"Eat ", 0.6, (b"Try ", 0.4)),
    drawn(HUO[:2], 0.4, (b"rice", 0.35), ("米".encode()[:2], 0.25)),
    drawn(HUO[2:], 0.995),
    drawn(GUO, 0.999, (b"<b>", 0.001)),
    drawn(b" now", 0.9991),
    drawn(b"\x1b[31m\n", 0.7, (b"!", 0.3)),
    drawn(b"\xf0\x9f", 0.5, (b".", 0.5)),
)


def test_a_token_that_decided_the_next_ones_is_found() -> None:
    """After the first half of 火, the rest of it and 锅 were certain."""
    assert forced_runs(HOT_POT.looks) == [Run(2, 5)]
    assert sure_runs(HOT_POT.looks) == [Run(2, 5)]
    assert most_doubtful(HOT_POT.looks) == [1, 6]


def test_certainty_from_the_start_was_forced_by_nothing() -> None:
    sure = drawn(b"x", 0.999)
    assert forced_runs([sure, sure]) == []
    assert forced_runs([drawn(b"x", 0.98), sure]) == [], "what comes after a token that was no choice"
    assert sure_runs([sure]) == [], "one token is no run"


def test_the_second_choice_of_a_reply_that_was_taken_back_is_looked_at() -> None:
    recorder = Recorder(name)
    for token in (1, 0, 2):
        recorder.drew(chances(0.2, 0.5, 0.3), token)
    recorder.instead(1, 2)
    assert [seen.drawn.token for seen in recorder.looks] == [1, 2]
    assert recorder.looks[1].drawn.rank == 2


@given(st.text(max_size=12), st.lists(st.integers(1, 4), min_size=1))
def test_tokens_that_split_characters_are_joined(text: str, sizes: list[int]) -> None:
    data = text.encode()
    pieces, start = [], 0
    for size in sizes * len(data):
        if start < len(data):
            pieces.append(data[start : start + size])
            start += size
    found = groups(pieces)
    assert "".join(group.text for group in found) == text
    assert [group.start for group in found[1:]] == [group.end for group in found[:-1]]


@given(st.lists(st.binary(max_size=4), max_size=8))
def test_no_bytes_make_a_broken_character(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    shown = "".join(group.text for group in groups(pieces))
    assert "\N{REPLACEMENT CHARACTER}" not in shown or "\N{REPLACEMENT CHARACTER}".encode() in data


def printed(report: LensReport, width: int = 160) -> str:
    out = io.StringIO()
    print_lens(report, Console(file=out, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


SNAPSHOT = r"""
local/test · top-k 40, top-p 0.95, min-p 0.05, temperature 0.8, seed 5
prefill: 1,234 tokens, 1,200 reused, 0.25 s

{Eat ⟨火⟩«锅 now»\x1b[31m
⟨\xf0\x9f⟩
⟨most doubtful⟩  «no alternative»

#  token         logit    prob  rank  bits  instead
1  'Eat '        12.00  60.0 %     1  0.97  'Try ' 40.0 %
2  '火' 1/2       8.00  40.0 %     1  1.56  'rice' 35.0 %, '\xe7\xb1' 25.0 %
3  '火' 2/2      19.90  99.5 %     1  0.01
4  '锅'          19.98  99.9 %     1  0.01  '<b>' 0.1 %
5  ' now'        19.98  99.9 %     1  0.00
6  '\x1b[31m\n'  14.00  70.0 %     1  0.88  '!' 30.0 %
7  '\xf0\x9f'    10.00  50.0 %     1  1.00  '.' 50.0 %
most doubtful: 2 '火' 1/2 1.6 bits, 7 '\xf0\x9f' 1.0 bits
no alternative: 3-5 '锅 now'
after 2 '火' 1/2 (40.0 %), '锅 now' is 99.5 % or more

Back to token 2: 'rice' (rank 2) in place of '火' 1/2
prefill: 1,235 tokens, 1,234 reused, 1,000 of them from disk, 0.02 s

{Eat ⟨rice⟩…
⟨most doubtful⟩  «no alternative»

                                                                        last kept,
#  token     logit    prob  rank  bits  penalty  top-k › top-p › min-p  first cut       temperature    instead
2  'rice'    17.50  35.0 %     2  1.56    -0.50  40 › 3 › 3             'x' 20.0 %,     40.0 → 37.5 %  '\xe7\x81' 40.0
                                                                        '米' 10.0 %                    % (4,000 fit
                                                                        (top-p)                        the grammar)
most doubtful: 2 'rice' 1.6 bits
"""


def test_the_text_of_a_reply() -> None:
    other = Look(
        Candidate(7, b"rice", 17.5, 0.35, 2),
        1.56,
        (Candidate(1, HUO[:2], 17.9, 0.4, 1), Candidate(7, b"rice", 17.5, 0.35, 2)),
        (
            Cut("top-k", 49152, 40, Candidate(40, b"w", 3.0, 0.0004, 40), Candidate(41, b"v", 2.9, 0.0003, 41)),
            Cut("top-p", 40, 3, Candidate(3, b"x", 9.0, 0.2, 3), Candidate(4, "米".encode(), 8.0, 0.1, 4)),
            Cut("min-p", 3, 3, Candidate(3, b"x", 9.0, 0.2, 3), None),
        ),
        penalty=0.5,
        before_temperature=0.4,
        after_temperature=0.375,
        fitting=4000,
    )
    branch = Branch(1, 2, Seen(1235, 1234, 1000, 0.02, (HOT_POT.looks[0], other), ended=False, given="{"))
    report = LensReport("local/test", Sampling(0.8, seed=5), HOT_POT, branch)
    assert printed(report, width=118) == SNAPSHOT.strip("\n")


def test_a_narrow_terminal_gets_what_fits() -> None:
    lines = printed(LensReport("local/test", Sampling(0.8), HOT_POT), width=80).splitlines()
    assert max(cells(line) for line in lines[5:-3]) <= 80


def cells(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


def test_nothing_of_a_reply_commands_the_terminal() -> None:
    hostile = reply(drawn("\x1b]0;x\x07\u202e\x9b2J".encode(), 0.6, (b"\x1b[2J", 0.4)), given="\x1b[1m")
    out = printed(LensReport("local/test", Sampling(), hostile))
    assert not set(out) & set("\x1b\x07\u202e\x9b")
    assert "\\x1b]0;x\\x07\\u202e\\x9b2J" in out


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.titles += [value or "" for key, value in attrs if key == "title"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_what_was_said_and_runs_nothing_of_it() -> None:
    said = '<script>alert("x")</script> & \x1b[31m\' onload="x'
    hostile = reply(drawn(said.encode(), 0.6, (b"<img src=x>", 0.4)), drawn(HUO[:2], 0.5), drawn(HUO[2:], 0.9))
    page = lens_page(LensReport("local/<b>", Sampling(0.7), hostile))
    parsed = Page(page)
    assert not {"script", "img", "link", "b", "iframe"} & set(parsed.tags)
    assert "http://" not in page
    assert "https://" not in page
    assert '<script>alert("x")</script> & \\x1b[31m\' onload="x火' in parsed.text
    assert "\x1b" not in page
    assert len(parsed.titles) == 2, "one for the two tokens of 火"
    assert "2 '火' 1/2 50.0 %" in parsed.titles[1]
    assert "3 '火' 2/2 90.0 %" in parsed.titles[1]
    assert "'<img src=x>' 40.0 %" in parsed.titles[0]


def test_the_json_is_one_object_with_every_number() -> None:
    branch = Branch(1, 2, reply(HOT_POT.looks[0], drawn(b"rice", 0.35, (HUO[:2], 0.4)), drawn(b"!", 0.9), given=""))
    told = json.loads(json.dumps(LensReport("local/test", Sampling(), HOT_POT, branch).to_json(), allow_nan=False))
    assert told["prefill"] == {"tokens": 1234, "reused": 1200, "restored": 0, "seconds": 0.25}
    assert [token["text"] for token in told["tokens"]][:4] == ["Eat ", None, "火", "锅"]
    assert told["forced"] == [{"after": 2, "first": 3, "last": 5}]
    assert told["branch"]["at"] == 2
    assert [token["number"] for token in told["branch"]["tokens"]] == [2, 3]
    assert told["branch"]["text"] == "Eat rice", "without the token that ends a reply"


def test_the_end_of_a_reply_is_no_text() -> None:
    ends = reply(drawn(b"Hi", 0.9), drawn(b"<|im_end|>", 0.9), given="")
    assert text_of(ends) == "Hi"
    assert text_of(replace(ends, ended=False)) == "Hi<|im_end|>"


@pytest.mark.parametrize(
    ("probability", "shown"),
    [(1.0, "100.0 %"), (0.99987, "99.987 %"), (0.9999999, "99.999 %"), (0.5, "50.0 %"), (1e-6, "<0.1 %"), (0, "0.0 %")],
)
def test_what_is_nearly_sure_is_not_shown_as_sure(probability: float, shown: str) -> None:
    assert percent(probability) == shown


def test_a_page_for_each_reply_and_a_line_that_names_it(tmp_path: Path) -> None:
    said: list[str] = []
    pages = LensPages("local/test", Sampling(), tmp_path / "lens", lambda: datetime(2026, 12, 3, 6, 5, 4), said.append)
    pages.write(HOT_POT)
    pages.write(HOT_POT)
    written = [tmp_path / "lens" / f"20261203-060504-{number}.html" for number in (1, 2)]
    assert said == [f"Lens of this reply: {path}" for path in written]
    assert all("锅" in path.read_text(encoding="utf-8") for path in written)


def test_a_page_that_cannot_be_written_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "lens").write_text("a file")
    LensPages("local/test", Sampling(), tmp_path / "lens", lambda: datetime(2026, 12, 3), said.append).write(HOT_POT)
    assert len(said) == 1
    assert "cannot be written" in said[0]
