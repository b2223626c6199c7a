"""A session as one HTML page: nothing is loaded and nothing runs, light or dark as the reader's system is."""

from html import escape
from typing import Final

from agent.export import Export, Item, about
from context.names import show_name

_STYLE: Final = """
:root { color-scheme: light dark; --soft: #0001; --line: #8886; --error: #b3261e }
@media (prefers-color-scheme: dark) { :root { --soft: #fff1; --error: #ff8a80 } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.5 ui-monospace, monospace; margin: .3rem 0 }
.command { background: var(--soft); border-left: 4px solid #3a7; padding: .5rem 1rem; margin-top: 2rem }
.notice { opacity: .7; border-left: 4px solid var(--line); padding-left: 1rem }
.reply pre { font: inherit }
details { border: 1px solid var(--line); border-radius: 4px; padding: .2rem .6rem; margin: .4rem 0 }
.error summary { color: var(--error) }
dt { float: left; clear: left; min-width: 6rem; opacity: .7 }
"""
_NAMES: Final = {"thinking": "Thinking", "summary": "Summary of what came before", "result": "Result"}


def page(made: Export) -> str:
    """The page as HTML text."""
    title = _text(show_name(made.session.title) or "Session")
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(show_name(value))}</dd>" for name, value in about(made))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<dl>{rows}</dl>\n"
        + "\n".join(_item(item) for item in made.items)
        + "\n</body></html>\n"
    )


def _item(item: Item) -> str:
    body = f"<pre>{_text(item.text)}</pre>"
    match item.kind:
        case "command" | "reply" | "notice":
            return f'<section class="{item.kind}">{body}</section>'
        case "call":
            return f"<details><summary>{_text(item.name or 'tool')}</summary>{body}</details>"
        case _:
            style, name = ("error", "Error") if item.is_error else (item.kind, _NAMES[item.kind])
            return f'<details class="{style}"><summary>{name}</summary>{body}</details>'


def _text(text: str) -> str:
    return escape(text, quote=True)
