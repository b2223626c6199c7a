"""`agent lens` on the terminal: the answer with its marks, then one line for each token."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.reports.lens import LensReport, Words, findings, how_drawn, percent, places
from backends.llama.lens import Look, Seen
from backends.llama.pieces import visible

_OTHERS = 3  # of the likeliest tokens beside the one that was drawn
_WIDE = 110  # columns of a terminal on which everything fits; the JSON has what is left out
_HOT, _WARM = 3.0, 1.0  # bits


def print_lens(report: LensReport, console: Console) -> None:
    _say(console, f"{report.model} · {how_drawn(report.sampling)}")
    _print_seen(console, report.seen)
    branch = report.branch
    if branch is None:
        return
    at = branch.at
    was, now = Words(report.seen).tokens[at], Words(branch.seen).tokens[at]
    _say(console, f"\nBack to token {at + 1}: {now} (rank {branch.rank}) in place of {was}")
    _print_seen(console, branch.seen, since=at)


def _print_seen(console: Console, seen: Seen, since: int = 0) -> None:
    disk = f", {seen.restored:,} of them from disk" if seen.restored else ""
    _say(console, f"prefill: {seen.prompt:,} tokens, {seen.reused:,} reused{disk}, {seen.seconds:.2f} s\n")
    console.print(_answer(seen, since), soft_wrap=True)
    _say(console, "⟨most doubtful⟩  «no alternative»\n")
    console.print(_table(seen, since, wide=console.width >= _WIDE))
    for line in findings(seen, since):
        _say(console, line)


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)


def _answer(seen: Seen, since: int) -> Text:
    """The reply as it stands, every token in the colour of its entropy; what stands before token `since` is dim."""
    text = Text().append(visible(seen.given), style="dim")
    for place in places(seen, since):
        shown = "\n".join(visible(line) for line in place.group.text.split("\n"))
        if place.group.end <= since:
            text.append(shown, style="dim")
            continue
        style = "bold red" if place.entropy >= _HOT else "yellow" if place.entropy >= _WARM else ""
        before = "«" if place.opens else ""
        behind = "»" if place.closes else ""
        text.append(f"{before}⟨{shown}⟩{behind}" if place.doubtful else f"{before}{shown}{behind}", style=style)
    if not seen.ended:
        text.append("…", style="dim")
    return text


def _table(seen: Seen, since: int, *, wide: bool) -> Table:
    drawn = any(look.cuts or look.after_temperature is not None for look in seen.looks)
    penalised = any(look.penalty for look in seen.looks)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("token", overflow="fold", min_width=8)
    for name in ("logit", "prob", "rank", "bits") if wide else ("prob", "rank", "bits"):
        table.add_column(name, justify="right", no_wrap=True)
    if penalised:
        table.add_column("penalty", justify="right", no_wrap=True)
    if drawn:
        names = next((" › ".join(cut.name for cut in look.cuts) for look in seen.looks if look.cuts), "left")
        table.add_column(names if wide else "left", no_wrap=True)
        if wide:
            table.add_column("last kept, first cut", overflow="fold")
        table.add_column("temperature", no_wrap=True)
    table.add_column("instead", overflow="fold")
    words = Words(seen)
    for index, look in enumerate(seen.looks):
        if index < since:
            continue
        row = [str(index + 1), words.tokens[index], *([f"{look.drawn.logit:.2f}"] if wide else [])]
        row += [percent(look.drawn.probability), f"{look.drawn.rank:,}", f"{look.entropy:.2f}"]
        if penalised:
            row.append(f"-{look.penalty:.2f}" if look.penalty else "")
        if drawn:
            row.append(" › ".join(f"{cut.after:,}" for cut in look.cuts))
            row += [*([_edge(words, index)] if wide else []), _temperature(look)]
        row.append(_instead(words, index, _OTHERS if wide else 1))
        table.add_row(*(Text(cell) for cell in row))
    return table


def _edge(words: Words, index: int) -> str:
    """The candidates on both sides of the cut that was the narrowest."""
    cut = next((cut for cut in reversed(words.looks[index].cuts) if cut.dropped is not None), None)
    if cut is None or cut.dropped is None:
        return ""
    return f"{words.candidate(index, cut.kept)}, {words.candidate(index, cut.dropped)} ({cut.name})"


def _temperature(look: Look) -> str:
    if look.before_temperature is None or look.after_temperature is None:
        return ""
    return f"{percent(look.before_temperature).removesuffix(' %')} → {percent(look.after_temperature)}"


def _instead(words: Words, index: int, most: int) -> str:
    look = words.looks[index]
    others = [candidate for candidate in look.best if candidate.token != look.drawn.token][:most]
    told = ", ".join(words.candidate(index, other) for other in others)
    return told if look.fitting is None else f"{told} ({look.fitting:,} fit the grammar)"
