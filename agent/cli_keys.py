"""`agent keys …`: keys of endpoints in the system's keyring. Their values are never shown."""

import os
import sys
from typing import Annotated, Final

import typer

from agent.cli_parts import print_json
from agent.config import Folders

keys_app: Final = typer.Typer(help="Keys of endpoints: which are there, and keeping them in the system's keyring.")
_ENDPOINT: Final = "anthropic, openai, or one of docs/endpoints.md."


@keys_app.command("ls")
def ls_command(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Which keys are there and where from, never what they are."""
    from rich.table import Table

    from agent.keys import list_keys
    from agent.reports.console import report_console

    rows = list_keys(Folders.find(os.environ), os.environ, warn_of_keys)
    if as_json:
        print_json(
            [
                {"endpoint": row.endpoint, "from": "keyring" if row.in_keyring else "environment", "name": row.source}
                for row in rows
            ]
        )
        return
    if not rows:
        sys.stdout.write("There are no keys. Keep one in the keyring: agent keys set ENDPOINT\n")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("endpoint", "from", ""):
        table.add_column(title)
    for row in rows:
        place = f"keyring ({row.source})" if row.in_keyring else f"environment ({row.source})"
        table.add_row(row.endpoint, place, "goes before the one in the keyring" if row.hidden else "")
    report_console().print(table)


@keys_app.command("set")
def set_command(endpoint: Annotated[str, typer.Argument(help=_ENDPOINT)]) -> None:
    """Ask for a key, without showing it, and keep it in the keyring. In a pipe it is read from standard input."""
    from agent.keys import key_to_store, store_key

    folders = Folders.find(os.environ)
    variable = key_to_store(folders, endpoint)
    if sys.stdin is not None and sys.stdin.isatty():
        import getpass

        key = getpass.getpass(f"Key for {endpoint} (it is not shown): ")
    else:
        key = "" if sys.stdin is None else sys.stdin.readline()
    keyring = store_key(folders, endpoint, key)
    sys.stdout.write(f"The key for {endpoint} is in the keyring ({keyring}).\n")
    if os.environ.get(variable, "").strip():
        sys.stderr.write(f"agent: {variable} is set in the environment, and goes before it.\n")


@keys_app.command("rm")
def rm_command(endpoint: Annotated[str, typer.Argument(help=_ENDPOINT)]) -> None:
    """Take a key out of the keyring."""
    from agent.errors import UserError
    from agent.keys import remove_key

    if not remove_key(Folders.find(os.environ), endpoint):
        raise UserError(f"The keyring has no key for {endpoint}. Nothing was changed.")
    sys.stdout.write(f"The key for {endpoint} is no longer in the keyring.\n")


def warn_of_keys(line: str) -> None:
    """On standard error, where no screen listens yet."""
    sys.stderr.write(f"agent: {line}\n")
