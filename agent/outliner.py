"""Outlines made in a child process: what a parser does with garbage ends the child and not the session.

A few kilobytes of another language under the wrong suffix can make tree-sitter take gigabytes, or overflow its stack
(tree-sitter 0.26.1: `%w(` 2,000 times in a .rs file took 2.4 GB), in a place where it cannot be told to give up.
"""

import contextlib
import json
import os
import subprocess
import sys
from typing import BinaryIO, Final

from backends.llama.child_python import ROOT, child_env
from context.repo.outline import Outline, outline

_MEMORY: Final = 1 << 30  # bytes of address space; real code of 256 kB takes a tenth
_CHILD: Final = "import sys; sys.path.insert(0, sys.argv[1]); from agent.outliner import serve; serve()"


class Outliner:
    """Starts its child when it is first needed. Close it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, name: str, data: bytes) -> Outline | None:
        """As `context.repo.outline.outline`. None also for a file that the parser cannot bear."""
        try:
            return self._ask(name, data)
        except (OSError, ValueError):  # it died: what it was given is no code
            self.close()
            return None

    def close(self) -> None:
        """Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _ask(self, name: str, data: bytes) -> Outline | None:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, str(ROOT)],
                cwd=ROOT,
                env=child_env(os.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this program
            )
        source, answers = self._child.stdin, self._child.stdout
        assert source is not None
        assert answers is not None
        source.write(json.dumps([name, len(data)]).encode() + b"\n" + data)
        source.flush()
        told = json.loads(answers.readline())
        return None if told is None else Outline(told[0], tuple(told[1]), frozenset(told[2]))


def serve() -> None:
    """The child: answers until nobody asks any more."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # a system without such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _answer(sys.stdin.buffer, sys.stdout.buffer)


def _answer(questions: BinaryIO, answers: BinaryIO) -> None:
    while question := questions.readline():
        name, size = json.loads(question)
        found = outline(name, questions.read(size))
        told = None if found is None else [found.text, found.defines, sorted(found.mentions)]
        answers.write(json.dumps(told).encode() + b"\n")
        answers.flush()
