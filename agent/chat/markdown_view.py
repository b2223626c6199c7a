"""How a reply looks: Markdown without boxes and without trailing spaces, so that what is copied from the scrollback can
be used, and code in the terminal's own sixteen colours, which suit a light background as well as a dark one.
"""

from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from agent.chat.markdown_stream import PARSER, Code

_THEME: Final = "ansi_dark"
_STYLES: Final = Theme({"markdown.code": "cyan", "markdown.code_block": "none"})  # no black boxes on light backgrounds
_TAB: Final = 4  # columns
_LOOK_BACK: Final = 400  # lines of a code block that are read again to know what state it is in


class Stripped:
    """`inner` without blank lines around it and without spaces at the ends of its lines."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(_STYLES):
            rendered = console.render_lines(self._inner, options.update(height=None), pad=False)
        lines = [_without_end(line) for line in rendered]
        full = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
        for line in lines[full[0] : full[-1] + 1] if full else []:
            yield from line
            yield Segment.line()


class Reply(Markdown):
    """A finished piece of Markdown. `number`: of the first item of the ordered list that it begins with."""

    def __init__(self, markup: str, number: int | None = None) -> None:
        super().__init__("", code_theme=_THEME, hyperlinks=False)
        self.markup = markup
        self.parsed = PARSER.parse(markup)
        if number is not None and self.parsed and self.parsed[0].type == "ordered_list_open":
            self.parsed[0].attrs["start"] = number


class _PlainHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.stylize("bold" if self.tag not in ("h1", "h2") else "bold underline")
        yield self.text


class _PlainCode(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield highlighted(str(self.text), self.lexer_name)


class _Rule(HorizontalRule):
    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * min(options.max_width, 40) if not options.ascii_only else "-" * 10, style="dim")


Reply.elements = {
    **Markdown.elements,
    "heading_open": _PlainHeading,
    "fence": _PlainCode,
    "code_block": _PlainCode,
    "hr": _Rule,
}


class CodeView:
    """The lines of one code block, portion by portion, each coloured as it is in the whole."""

    def __init__(self) -> None:
        self._before: list[str] = []

    def add(self, code: Code) -> Text:
        """The next lines."""
        text = self.peek(code)
        self._before = [*self._before, *code.text.splitlines(keepends=True)][-_LOOK_BACK:]
        return text

    def peek(self, code: Code) -> Text:
        """The same, for lines that may still change."""
        before = "".join(self._before).expandtabs(_TAB)
        whole = highlighted(before + code.text, code.language)
        if not whole.plain.startswith(before):  # a lexer that does not keep to the text
            return highlighted(code.text, code.language)
        return whole[len(before) :] if before else whole


def highlighted(code: str, language: str) -> Text:
    """Code in colours, without its last line end. An unknown language is plain."""
    code = code.expandtabs(_TAB)
    text = Syntax(code, language or "text", theme=_THEME, background_color="default").highlight(code)
    text.overflow, text.no_wrap = "fold", False
    text.right_crop(1 if text.plain.endswith("\n") else 0)
    return text


def _without_end(line: list[Segment]) -> list[Segment]:
    while line:
        text, style, _ = line[-1]
        shows = style is not None and style.bgcolor is not None and not style.bgcolor.is_default
        kept = text if shows else text.rstrip(" ")
        if kept:
            return [*line[:-1], Segment(kept, style)]
        line = line[:-1]
    return line
