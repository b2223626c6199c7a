"""A reply under the lens as a page of its own: no script, nothing fetched. Doubt is the colour of each token; what
pointing at it shows is all that is known of it.
"""

from html import escape
from typing import Final

from agent.reports.lens import LensReport, Place, Words, findings, how_drawn, percent, places
from backends.llama.lens import Look, Seen
from backends.llama.pieces import visible

_LEVELS: Final = 9
_COLUMNS: Final = ("#", "token", "logit", "probability", "rank", "bits", "how", "instead")
_MOST_BITS: Final = 6.0  # of entropy that has a colour of its own

_STYLE: Final = """
body { font: 15px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
body { color: #1b1b1b; background: #fff }
h1 { font-size: 1.1rem } h2 { font-size: 1rem; margin-top: 2rem }
.about, .legend { color: #555 }
.answer { font: 16px/2 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
.answer span { border-radius: 2px; cursor: help }
.before { color: #888 }
.doubtful { border-bottom: 3px solid #b00 }
.sure { border-bottom: 3px solid #083 }
table { border-collapse: collapse; font: 13px/1.5 ui-monospace, monospace }
td, th { text-align: left; padding: 1px 12px 1px 0; vertical-align: top }
td.n { text-align: right }
"""


def lens_page(report: LensReport) -> str:
    """The page as HTML text."""
    body = [f"<h1>{_text(report.model)}</h1>", f'<p class="about">{_text(how_drawn(report.sampling))}</p>']
    body.append(_seen(report.seen))
    branch = report.branch
    if branch is not None:
        was, now = Words(report.seen).tokens[branch.at], Words(branch.seen).tokens[branch.at]
        told = f"Back to token {branch.at + 1}: {now} (rank {branch.rank}) in place of {was}"
        body += [f"<h2>{_text(told)}</h2>", _seen(branch.seen, branch.at)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Lens: {_text(report.model)}</title>\n<style>{_STYLE}{_heat()}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _heat() -> str:
    """Background colours of the levels of doubt, white to red."""
    lines = [f".h{level} {{ background: rgba(220, 60, 20, {0.08 * level:.2f}) }}" for level in range(_LEVELS + 1)]
    return "\n".join(lines) + "\n"


def _seen(seen: Seen, since: int = 0) -> str:
    disk = f", {seen.restored:,} of them from disk" if seen.restored else ""
    words = Words(seen)
    about = f"prefill: {seen.prompt:,} tokens, {seen.reused:,} reused{disk}, {seen.seconds:.2f} s"
    given = f'<span class="before">{_lines(seen.given)}</span>' if seen.given else ""
    shown = "".join(_place(words, place, since) for place in places(seen, since))
    legend = " ".join(
        f'<span class="h{level}">&nbsp;{_MOST_BITS * level / _LEVELS:.0f} bits&nbsp;</span>'
        for level in range(0, _LEVELS + 1, 3)
    )
    marks = '<span class="doubtful">most doubtful</span>, <span class="sure">no alternative</span>'
    rows = "\n".join(_row(words, index) for index in range(since, len(seen.looks)))
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return (
        f'<p class="about">{_text(about)}</p>\n<p class="answer">{given}{shown}{"" if seen.ended else "…"}</p>\n'
        f'<p class="legend">{legend} {marks}</p>\n{_findings(seen, since)}\n'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )


def _place(words: Words, place: Place, since: int) -> str:
    group = place.group
    told = "\n".join(_told(words, index) for index in range(group.start, group.end))
    if group.end <= since:
        classes = ["before"]
    else:
        classes = [f"h{min(_LEVELS, round(_LEVELS * place.entropy / _MOST_BITS))}"]
        classes += ["doubtful"] * place.doubtful + ["sure"] * place.sure
    return f'<span class="{" ".join(classes)}" title="{_lines(told)}">{_lines(group.text)}</span>'


def _told(words: Words, index: int) -> str:
    """All that is known of one token, for pointing at it."""
    look = words.looks[index]
    lines = [
        f"{index + 1} {words.tokens[index]} {percent(look.drawn.probability)}, rank {look.drawn.rank:,}, "
        f"logit {look.drawn.logit:.2f}, entropy {look.entropy:.2f} bits"
    ]
    if how := _how(look):
        lines.append(how)
    lines.append(f"likeliest: {_best(words, index)}")
    return "\n".join(lines)


def _how(look: Look) -> str:
    told = [f"{cut.name} {cut.before:,} → {cut.after:,}" for cut in look.cuts]
    if look.penalty:
        told.insert(0, f"penalty -{look.penalty:.2f}")
    if look.before_temperature is not None and look.after_temperature is not None:
        told.append(f"temperature {percent(look.before_temperature)} → {percent(look.after_temperature)}")
    if look.fitting is not None:
        told.append(f"{look.fitting:,} fit the grammar")
    return ", ".join(told)


def _best(words: Words, index: int) -> str:
    return ", ".join(words.candidate(index, candidate) for candidate in words.looks[index].best)


def _row(words: Words, index: int) -> str:
    look, drawn = words.looks[index], words.looks[index].drawn
    numbers = (f"{drawn.logit:.2f}", percent(drawn.probability), f"{drawn.rank:,}", f"{look.entropy:.2f}")
    return (
        f'<tr><td class="n">{index + 1}</td><td>{_text(words.tokens[index])}</td>'
        + "".join(f'<td class="n">{number}</td>' for number in numbers)
        + f"<td>{_text(_how(look))}</td><td>{_text(_best(words, index))}</td></tr>"
    )


def _findings(seen: Seen, since: int) -> str:
    lines = findings(seen, since)
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>" if lines else ""


def _text(text: str) -> str:
    return escape(visible(text), quote=True)


def _lines(text: str) -> str:
    """As `_text`, with line breaks left as they are."""
    return "\n".join(_text(line) for line in text.split("\n"))
