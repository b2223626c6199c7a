"""`agent config …`: the settings in force, where each comes from, and changing one."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from agent.cli_parts import print_json
from agent.config import Folders

config_app: Final = typer.Typer(help="Settings: what is in force, where it comes from, and changing it.")


@config_app.callback(invoke_without_command=True)
def config_command(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/configuration.md).")] = False,
) -> None:
    """Settings in force in this directory, and where each comes from."""
    if context.invoked_subcommand is not None:
        return
    from agent.reports.config import config_report, print_config

    report = config_report(Folders.find(os.environ), os.environ, Path.cwd())
    if as_json:
        print_json(report.to_json())
    else:
        print_config(report)


@config_app.command("path")
def path_command(
    project: Annotated[bool, typer.Option("--project", help="The repository's file, if it has one.")] = False,
) -> None:
    """Where your settings are, whether the file is there yet or not."""
    from agent.config_file import NAME
    from agent.errors import UserError
    from agent.project_folder import project_folder

    folders = Folders.find(os.environ)
    path = folders.file
    if project:
        folder = project_folder(Path.cwd(), folders.config)
        if folder is None or not (folder / NAME).exists():
            raise UserError("This repository has no settings of its own (.keepwarm/config.toml).")
        path = folder / NAME
    sys.stdout.write(f"{path}\n")


@config_app.command("set", context_settings={"ignore_unknown_options": True})  # -1 is a value
def set_command(
    key: Annotated[str, typer.Argument(help="A setting, or endpoints.NAME.KEY.")],
    value: Annotated[str, typer.Argument(help="Its value.")],
) -> None:
    """Set one of your settings. The rest of the file stays as it is, comments included."""
    from agent.config_edit import set_value

    folders = Folders.find(os.environ)
    written = set_value(folders, key, value)
    sys.stdout.write(f"{key} = {written}\n")
    _warn_of_variable(key)


@config_app.command("unset")
def unset_command(key: Annotated[str, typer.Argument(help="A setting, or endpoints.NAME.KEY.")]) -> None:
    """Take one of your settings out of the file: its default holds again."""
    from agent.config_edit import unset_value

    folders = Folders.find(os.environ)
    if not unset_value(folders, key):
        sys.stderr.write(f"agent: {folders.file} does not set {key}. Nothing was changed.\n")
    _warn_of_variable(key)


def _warn_of_variable(key: str) -> None:
    variable = f"KEEPWARM_{key.upper()}"
    if os.environ.get(variable):
        sys.stderr.write(f"agent: {variable} is set in the environment, and goes before the file.\n")
