"""`agent lens`: what a reply looks like through the lens, for all its forms (text, HTML, JSON), and the JSON itself.

The JSON is documented in docs/lens.md and stable: fields are added, never renamed or removed.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from backends.llama.lens import Candidate, Cut, Look, Run, Seen, forced_runs, most_doubtful, sure_runs
from backends.llama.lens_run import Branch
from backends.llama.pieces import Group, decoded, groups, visible
from backends.llama.sampling import Sampling

MARKED: Final = 5  # doubtful tokens, and runs without alternative, that are marked
_LEAST_RUN: Final = 3  # tokens of a run that is worth a mark


@dataclass(frozen=True, slots=True)
class LensReport:
    model: str
    sampling: Sampling
    seen: Seen
    branch: Branch | None = None

    def to_json(self) -> dict[str, Any]:
        branch = self.branch
        return {
            "model": self.model,
            "sampling": asdict(self.sampling),
            **_seen_json(self.seen),
            "branch": None
            if branch is None
            else {"at": branch.at + 1, "rank": branch.rank, **_seen_json(branch.seen, since=branch.at)},
        }


@dataclass(frozen=True, slots=True)
class Place:
    """The fewest tokens in a row that are whole characters. `doubtful`: among the most doubtful places of the reply;
    `sure`: in one of its longest runs without alternative, which `opens` or `closes` here.
    """

    group: Group
    looks: tuple[Look, ...]
    doubtful: bool = False
    sure: bool = False
    opens: bool = False
    closes: bool = False

    @property
    def entropy(self) -> float:
        """Of its most doubtful token, in bits."""
        return max(look.entropy for look in self.looks)


def pieces(seen: Seen) -> list[bytes]:
    return [look.drawn.piece for look in seen.looks]


def text_of(seen: Seen) -> str:
    """What the model said, without the token that ends a reply."""
    said = pieces(seen)[:-1] if ends_with_control(seen) else pieces(seen)
    return seen.given + "".join(group.text for group in groups(said))


def ends_with_control(seen: Seen) -> bool:
    """Whether the last token is no text, but the model's sign that it has come to an end."""
    return seen.ended and not seen.given


def places(seen: Seen, since: int = 0) -> list[Place]:
    """The reply in order, with the marks of its surest and its most doubtful places from token `since` on."""
    doubtful = set(doubts(seen, since))
    sure = {index for run in marked_runs(seen, since) for index in range(run.start, run.end)}
    found = groups(pieces(seen))
    certain = [False, *(sure.issuperset(range(group.start, group.end)) for group in found), False]
    return [
        Place(
            group,
            seen.looks[group.start : group.end],
            doubtful=not doubtful.isdisjoint(range(group.start, group.end)),
            sure=certain[number],
            opens=certain[number] and not certain[number - 1],
            closes=certain[number] and not certain[number + 1],
        )
        for number, group in enumerate(found, 1)
    ]


def doubts(seen: Seen, since: int = 0) -> list[int]:
    """The most doubtful tokens from `since` on."""
    return [index for index in most_doubtful(seen.looks) if index >= since][:MARKED]


def marked_runs(seen: Seen, since: int = 0) -> list[Run]:
    runs = sure_runs(seen.looks)
    return [run for run in runs if run.length >= _LEAST_RUN and run.start >= since][:MARKED]


class Words:
    """The tokens of a reply as they are shown: quoted, on one line, a part of a character as that part of it."""

    def __init__(self, seen: Seen) -> None:
        self.looks: Final = seen.looks
        self.tokens: Final[list[str]] = []
        self._begun: Final[list[bytes]] = []  # the bytes of an unfinished character that stand before each token
        said = pieces(seen)
        self._groups: Final = groups(said)
        for group in self._groups:
            count = group.end - group.start
            quoted = f"'{visible(group.text)}'"
            for part in range(1, count + 1):
                self.tokens.append(quoted if count == 1 else f"{quoted} {part}/{count}")
                self._begun.append(b"".join(said[group.start : group.start + part - 1]))

    def candidate(self, index: int, candidate: Candidate) -> str:
        """A token that could have been token `index`, as the character that it would have completed, and its
        probability.
        """
        text = visible(decoded(self._begun[index] + candidate.piece))
        return f"'{text}' {percent(candidate.probability)}"

    def run(self, run: Run) -> str:
        """The whole characters of a run, or the one that it is a part of."""
        within = [group for group in self._groups if run.start <= group.start and group.end <= run.end]
        touched = within or [group for group in self._groups if group.start < run.end and run.start < group.end]
        return visible("".join(group.text for group in touched))


def findings(seen: Seen, since: int = 0) -> list[str]:
    """What is worth knowing of the reply from token `since` on, a sentence each."""
    words, lines = Words(seen), []
    doubtful = doubts(seen, since)
    if doubtful:
        told = [f"{index + 1} {words.tokens[index]} {seen.looks[index].entropy:.1f} bits" for index in doubtful]
        lines.append("most doubtful: " + ", ".join(told))
    sure = [f"{run.start + 1}-{run.end} '{words.run(run)}'" for run in marked_runs(seen, since)]
    if sure:
        lines.append("no alternative: " + ", ".join(sure))
    for run in forced(seen, since):
        at = run.start - 1
        least = min(look.drawn.probability for look in seen.looks[run.start : run.end])
        chosen = f"{words.tokens[at]} ({percent(seen.looks[at].drawn.probability)})"
        all_of_it = percent(least) + (" or more" if run.length > 1 else "")
        lines.append(f"after {at + 1} {chosen}, '{words.run(run)}' is {all_of_it}")
    return lines


def forced(seen: Seen, since: int = 0) -> list[Run]:
    """The longest runs that a token from `since` on has forced."""
    return [run for run in forced_runs(seen.looks) if run.start > since][:MARKED]


def percent(probability: float) -> str:
    """Sure things and slim chances with the digits that tell them apart."""
    shown = 100 * probability
    if 99.95 <= shown < 100:
        return f"{math.floor(shown * 1000) / 1000:.3f} %"
    return f"{shown:.1f} %" if shown >= 0.05 or not shown else "<0.1 %"


def how_drawn(sampling: Sampling) -> str:
    """The settings of sampling that are in force, on one line."""
    words = []
    if (sampling.repeat, sampling.frequency, sampling.presence) != (1.0, 0.0, 0.0):
        words.append(f"penalties {sampling.repeat:g}/{sampling.frequency:g}/{sampling.presence:g}")
    if sampling.dry_multiplier > 0:
        words.append(f"DRY {sampling.dry_multiplier:g} × {sampling.dry_base:g}^(n - {sampling.dry_allowed})")
    if sampling.temperature <= 0:
        return ", ".join([*words, "temperature 0 (the likeliest token each time)"])
    words += [f"top-k {sampling.top_k}", f"top-p {sampling.top_p:g}", f"min-p {sampling.min_p:g}"]
    if sampling.xtc_probability > 0:
        words.append(f"XTC {sampling.xtc_probability:g} above {sampling.xtc_threshold:g}")
    return ", ".join([*words, f"temperature {sampling.temperature:g}", f"seed {sampling.seed}"])


def _seen_json(seen: Seen, since: int = 0) -> dict[str, Any]:
    """`since`: the first token that is told; the ones before are those of the reply it parted from."""
    texts: list[str | None] = []
    for group in groups(pieces(seen)):
        texts += [*[None] * (group.end - group.start - 1), group.text]
    return {
        "prefill": {
            "tokens": seen.prompt,
            "reused": seen.reused,
            "restored": seen.restored,
            "seconds": round(seen.seconds, 4),
        },
        "text": text_of(seen),
        "ended": seen.ended,
        "tokens": [
            _look_json(number, look, text)
            for number, (look, text) in enumerate(zip(seen.looks, texts, strict=True), 1)
            if number > since
        ],
        "most_doubtful": [index + 1 for index in doubts(seen, since)],
        "surest": [_run_json(run) for run in marked_runs(seen, since)],
        "forced": [{"after": run.start, **_run_json(run)} for run in forced(seen, since)],
    }


def _run_json(run: Run) -> dict[str, int]:
    return {"first": run.start + 1, "last": run.end}


def _look_json(number: int, look: Look, text: str | None) -> dict[str, Any]:
    return {
        "number": number,
        "text": text,
        **_candidate_json(look.drawn),
        "entropy_bits": round(look.entropy, 4),
        "best": [_candidate_json(candidate) for candidate in look.best],
        "cuts": [_cut_json(cut) for cut in look.cuts],
        "penalty": _finite(look.penalty),
        "before_temperature": _finite(look.before_temperature),
        "after_temperature": _finite(look.after_temperature),
        "fitting": look.fitting,
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "token": candidate.token,
        "piece": decoded(candidate.piece),
        "logit": _finite(candidate.logit),
        "probability": _finite(candidate.probability),
        "rank": candidate.rank,
    }


def _cut_json(cut: Cut) -> dict[str, Any]:
    return {
        "name": cut.name,
        "before": cut.before,
        "after": cut.after,
        "kept": _candidate_json(cut.kept),
        "dropped": None if cut.dropped is None else _candidate_json(cut.dropped),
    }


def _finite(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else round(number, 6)
