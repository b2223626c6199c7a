"""`agent context`: where the tokens of this repository go before the first command, and what was left out and why."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from agent.head import Head
from agent.reports.console import report_console
from agent.tools import specs
from context.block import Text, ToolSpec
from context.layers.project import sections
from context.layers.system import system_blocks
from context.names import show_name
from context.tokens import count_tokens

_SHOWN: Final = 12  # of what was left out


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a layer, and its o200k_base tokens. `why` it is there, where that is a choice."""

    layer: str
    name: str
    tokens: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class ContextReport:
    """`budgets`: what the tree and the core files may take. `left_out`: (path, why), best first."""

    profile: str
    shares: tuple[Share, ...]
    tree_budget: int
    files_budget: int
    left_out: tuple[tuple[str, str], ...]

    @property
    def total(self) -> int:
        return sum(share.tokens for share in self.shares)

    def to_json(self) -> dict[str, Any]:
        """Documented in docs/repository.md."""
        return {**asdict(self), "total": self.total}


def context_report(head: Head) -> ContextReport:
    """What a session that begins now would send ahead of its first command. Reads the repository, sends nothing."""
    parts = [part for block in system_blocks(head.profile, specs(head.profile)) for part in block.parts]
    tools = [f"{part.name} {part.description} {part.parameters}" for part in parts if isinstance(part, ToolSpec)]
    words = [part.text for part in parts if isinstance(part, Text)]
    facts = head.facts()
    chosen = {f"{show_name(file.path)} ({file.form})": file.why for file in facts.core.files}
    return ContextReport(
        head.profile,
        (
            Share("SYSTEM", f"{len(tools)} tools", _tokens(tools)),
            Share("SYSTEM", "instructions", _tokens(words)),
            *(
                Share("PROJECT", section.name, count_tokens(section.text), chosen.get(section.name, ""))
                for section in sections(facts, head.tree_budget)
            ),
        ),
        head.tree_budget,
        head.files_budget,
        tuple((show_name(path), why) for path, why in facts.core.left_out),
    )


def _tokens(texts: Sequence[str]) -> int:
    return sum(count_tokens(text) for text in texts)


def print_context(report: ContextReport) -> None:
    """The report as a table on standard output."""
    from rich.table import Table

    console = report_console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("layer")
    table.add_column("what", overflow="fold")
    table.add_column("tokens", justify="right")
    table.add_column("")
    table.add_column("why", style="dim")
    most = max((share.tokens for share in report.shares), default=1)
    before = ""
    for share in report.shares:
        bar = "█" * max(1, round(20 * share.tokens / most)) if share.tokens else ""
        table.add_row(share.layer if share.layer != before else "", share.name, f"{share.tokens:,}", bar, share.why)
        before = share.layer
    table.add_section()
    table.add_row("total", "", f"{report.total:,}", "", "")
    console.print(table)
    console.print(
        f"Budgets: {report.files_budget:,} tokens for core files (files_budget), {report.tree_budget:,} for the tree "
        "(tree_budget). Tokens are o200k_base; a model may count others.",
        style="dim",
    )
    for path, why in report.left_out[:_SHOWN]:
        console.print(f"left out: {path} ({why})", style="dim", markup=False)
    if len(report.left_out) > _SHOWN:
        console.print(f"and {len(report.left_out) - _SHOWN:,} more", style="dim")
