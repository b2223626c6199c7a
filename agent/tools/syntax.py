"""Whether a file still parses, for the languages that the standard library can parse."""

import ast
import json
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """`line` from 1, if the parser knows it; `source` is that line."""

    message: str
    line: int | None
    source: str

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.message}" + (f"\n{self.source}" if self.source.strip() else "")


def syntax_problem(path: Path, text: str) -> SyntaxProblem | None:
    """What is wrong with `text` as the content of `path`; None if it parses or the language is not known here."""
    text = text.replace("\r\n", "\n")
    try:
        match path.suffix:
            case ".py" | ".pyi":
                _parse_python(text)
            case ".json" | ".ipynb":
                json.loads(text)
            case ".toml":
                tomllib.loads(text)
    except SyntaxError as error:
        # The version, because the code may be meant for a newer Python than the one that runs here.
        return _problem(text, f"{error.msg} (Python {sys.version_info.major}.{sys.version_info.minor})", error.lineno)
    except json.JSONDecodeError as error:
        return _problem(text, error.msg, error.lineno)
    except tomllib.TOMLDecodeError as error:
        return _problem(text, str(error), None)
    except (ValueError, RecursionError, MemoryError):
        return None  # the parser's own limits (nesting, NUL characters) say nothing about the edit
    return None


def _parse_python(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes and the like, in code that is not ours
        ast.parse(text)


def _problem(text: str, message: str, line: int | None) -> SyntaxProblem:
    lines = text.split("\n")
    source = lines[line - 1] if line is not None and 0 < line <= len(lines) else ""
    return SyntaxProblem(message, line, source[:200])
