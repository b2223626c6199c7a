"""The commands that a command runs in its turn: behind `sudo` and `xargs`, in `bash -c`, in `find -exec`. Pure.

It looks at the words only. What a program does by itself, or a script that lies in a file, is not seen.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from context.shell_commands import UNKNOWN, Words, read_script
from context.shell_words import HOLE


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DEEPEST: Final = 6  # commands within commands; what lies deeper is not understood
_MOST: Final = 400  # commands that one command may hold

_SHELLS: Final = _set("sh bash dash zsh ksh mksh ash fish csh tcsh rbash")
# What stands before a command: options that take the next word for their value, and words before the command.
_PREFIXES: Final[Mapping[str, tuple[frozenset[str], int]]] = {
    name: (frozenset(options.split()), words)
    for name, options, words in (
        ("env", "-u --unset -C --chdir -P -a --argv0", 0),
        ("sudo", "-u -g -h -p -C -T -r -t -D -R -U --user --group --host --prompt --chdir --chroot --role --type", 0),
        ("doas", "-u -C", 0),
        ("nohup", "", 0),
        ("time", "-f -o --format --output", 0),
        ("nice", "-n --adjustment", 0),
        ("ionice", "-c -n -p --class --classdata", 0),
        ("timeout", "-k -s --kill-after --signal", 1),
        ("gtimeout", "-k -s --kill-after --signal", 1),
        ("stdbuf", "-i -o -e --input --output --error", 0),
        ("setsid", "", 0),
        ("xargs", "-I -n -P -L -d -E -a -s --replace --max-args --max-procs --delimiter --arg-file --max-lines", 0),
        ("command", "", 0),
        ("builtin", "", 0),
        ("exec", "-a", 0),
        ("coproc", "", 0),
        ("chroot", "", 1),
        ("busybox", "", 0),
        ("toybox", "", 0),
        ("caffeinate", "-t -w", 0),
        ("unbuffer", "", 0),
        ("fakeroot", "-l -s -i", 0),
    )
}
# Also run what stands behind their options, or in a text; which option takes a value is not known here.
_GUESSED: Final = _set(
    "su runuser pkexec chrt taskset numactl setpriv gxargs parallel unshare nsenter watch strace "
    "ltrace gdb valgrind flock script rlwrap firejail bwrap proxychains proxychains4 systemd-run "
    "xvfb-run dbus-run-session dbus-launch prlimit cgexec faketime entr ssh sg newgrp start-stop- "
    "daemon sem arch catchsegv eatmydata torsocks torify uv uvx poetry pipenv npx pnpx bunx sandbox- "
    "exec docker podman kubectl nix-shell direnv mise asdf hyperfine perf trap noglob nocorrect "
)
_DYNAMIC_LINKERS: Final = ("ld-linux", "ld-musl", "ld.so")
_INTERPRETERS: Final = re.compile(
    r"^(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|[gmn]?awk|tclsh|osascript|g?sed|vim?|nvim|ex|ed|emacs)"
    r"[\d.]*$"
)
_STARTS_PROGRAMS: Final = re.compile(
    r"system|exec|popen|spawn|process|eval|import|require|`|%x|\bqx\b|getline|\||!|\be\b"
)
_CODE_FOLLOWS: Final = frozenset({"-c", "-e", "-E", "-r", "-ne", "-pe", "-S", "--eval"})
_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_]\w*\+?=")
_OPTION_VALUE: Final = re.compile(r"^-{1,2}[\w-]+=(.+)$", re.DOTALL)
_EXECUTES: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_GIT_VALUES: Final = _set("-C -c --git-dir --work-tree --namespace --super-prefix --config-env")


@dataclass(frozen=True, slots=True)
class Inner:
    """`certain`: it runs; otherwise it may run."""

    words: Words
    certain: bool = True


def name_of(words: Words) -> str:
    """The program, without its folder, in lower case: some file systems know no difference."""
    return words[0].rpartition("/")[2].casefold() if words else ""


def inner(words: Words, depth: int = 0) -> Iterator[Inner]:
    """All commands that `words` runs or may run in its turn, also those within them; UNKNOWN for what cannot be seen.

    Guesses err on the safe side: they name too many.
    """
    found = list(_found(words))
    if found and (depth >= _DEEPEST or len(found) > _MOST):
        yield Inner(UNKNOWN)
        return
    for command in found:
        yield command
        if command.words != UNKNOWN and command.words != words:
            for deeper in inner(command.words, depth + 1):
                yield Inner(deeper.words, command.certain and deeper.certain)


def _found(words: Words) -> Iterator[Inner]:
    name = name_of(words)
    if not words or HOLE in name:
        return
    rest = words[1:]
    if name in _PREFIXES:
        yield from _behind_prefix(rest, *_PREFIXES[name])
    elif name in _GUESSED or name.startswith(_DYNAMIC_LINKERS):
        yield from (Inner(command, certain=False) for command in _tails(rest))
        yield from _guessed(_texts(rest))
    if name == "env":
        yield from _texts(word for word in rest if word.startswith(("-S", "--split-string")) or " " in word)
    if name in _SHELLS:
        yield from _of_shell(rest)
    if name == "eval":
        yield from _script(" ".join(rest))
    if name in ("source", ".") and (not rest or HOLE in rest[0] or rest[0].startswith(("/dev/", "/proc/"))):
        yield Inner(UNKNOWN)
    if name in ("at", "batch", "crontab"):  # they read commands from a stream
        yield Inner(UNKNOWN)
    if name == "alias":
        yield from (command for word in rest for command in _script(word.partition("=")[2]))
    if name == "trap" and rest:
        yield from _script(rest[1] if rest[0] == "--" and len(rest) > 1 else rest[0])
    if name == "git":
        yield from _of_git(words)
    if _INTERPRETERS.match(name):
        yield from _of_interpreter(rest)
    for at, word in enumerate(rest):
        if word in _EXECUTES and rest[at + 1 :]:
            yield Inner(rest[at + 1 :])


def hints(words: Words) -> Iterator[Words]:
    """What the values of options might run, as in `tar --to-command=rm`: too vague for more than a question."""
    for word in words[1:]:
        if (value := _OPTION_VALUE.match(word)) is not None:
            yield from (command.words for command in _script(value[1].removeprefix("exec=")))


def without_options(words: Words) -> Iterator[Inner]:
    """The command without the options before its subcommand: of `git -C x push` it is `git push`.

    An option of another program may or may not take the next word for its value, so there are several guesses.
    """
    known = name_of(words) == "git"
    places, done = [1], set[int]()
    while places:
        at = places.pop()
        if at in done or at >= len(words):
            continue
        done.add(at)
        if not words[at].startswith("-"):
            if at > 1:
                yield Inner((words[0], *words[at:]), certain=known)
        elif not known:
            places += [at + 1, at + 2]
        else:
            places.append(at + 2 if words[at] in _GIT_VALUES else at + 1)


def _behind_prefix(rest: Words, with_value: frozenset[str], skipped: int) -> Iterator[Inner]:
    at = 0
    while at < len(rest):
        word = rest[at]
        if HOLE in word and (word.startswith((HOLE, "-")) or _ASSIGNMENT.match(word)):
            yield Inner(UNKNOWN)  # it may be an option or nothing, so that any of the following may be the command
            yield from (Inner(rest[later:], certain=False) for later in range(at + 1, len(rest)))
            return
        if word.startswith("-"):
            at += 2 if word in with_value else 1
        elif _ASSIGNMENT.match(word):
            at += 1
        elif skipped:
            skipped -= 1
            at += 1
        else:
            yield Inner(rest[at:])
            return


def _tails(rest: Words) -> Iterator[Words]:
    """What may be the command among the words of a program of which we do not know the options."""
    for at, word in enumerate(rest):
        if not word.startswith("-"):
            yield rest[at:]


def _texts(words: Iterable[str]) -> Iterator[Inner]:
    """What arguments that are command lines of their own run."""
    for word in words:
        yield from _script(re.sub(r"^(?:-S|-c|--[\w-]+=)\s*", "", word))


def _guessed(commands: Iterable[Inner]) -> Iterator[Inner]:
    return (Inner(command.words, certain=False) for command in commands)


def _of_shell(rest: Words) -> Iterator[Inner]:
    plain = [word for word in rest if not word.startswith(("-", "+"))]
    code = any(re.match(r"^-[a-zA-Z]*c", word) or word.startswith("--c") or (HOLE in word) for word in rest)
    if code:
        yield from _texts(plain)
        yield from _texts(word.partition("c")[2] for word in rest if word.startswith("-"))
    if not plain or HOLE in plain[0] or plain[0].startswith(("/dev/", "/proc/")) or "-s" in rest:
        yield Inner(UNKNOWN)  # it reads its commands from a stream


def _of_git(words: Words) -> Iterator[Inner]:
    for at, word in enumerate(words[1:], 1):
        if words[at - 1] == "-c" or word.startswith("-c") or "=!" in word:
            yield from _script(word.partition("=")[2].removeprefix("!"))
        elif word.startswith("!"):
            yield from _script(word[1:])
        elif word in ("run", "foreach", "--exec", "-x", "--tree-filter", "--index-filter", "--msg-filter"):
            yield Inner(words[at + 1 :] or UNKNOWN, certain=False)
            yield from _guessed(_texts(words[at + 1 :]))
        elif word.startswith("--exec="):
            yield from _script(word.partition("=")[2])


def _of_interpreter(rest: Words) -> Iterator[Inner]:
    """Code on the command line, or on a stream, that may start programs."""
    code = [word for word in rest if any(char in word for char in " (;'\"{}!|\n") or word[:1] in "-+"]
    unknown = any(HOLE in word for word in rest) and any(word in _CODE_FOLLOWS for word in rest)
    if not rest or "-" in rest or unknown or any(_STARTS_PROGRAMS.search(word) for word in code):
        yield Inner(UNKNOWN)


def _script(text: str) -> Iterator[Inner]:
    if HOLE in text:
        yield Inner(UNKNOWN)
    if text.strip():
        yield from (Inner(words) for words in read_script(text.replace(HOLE, "${_}")).commands)
