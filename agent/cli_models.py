"""`agent models …`: which models there are, what is known of one, and getting it."""

import os
import sys
from typing import Annotated, Final

import typer

from agent.cli_parts import run_to_end
from agent.config import Folders

models_app: Final = typer.Typer(help="Local models: what there is, download, details.", no_args_is_help=True)


@models_app.command("list")
def models_list() -> None:
    """Local models that are here or can be downloaded, and cloud models that the catalogue knows."""
    from agent.reports.models import print_models

    print_models(Folders.find(os.environ))


@models_app.command("show")
def models_show(
    name: Annotated[str, typer.Argument(help="A model's name, or a GGUF file.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read the whole file and compare its SHA-256.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (docs/local-models.md).")] = False,
) -> None:
    """What is known of one model; of a file that is here also what it says of itself, and the memory that it needs."""
    from agent.reports.models import print_model

    print_model(name, Folders.find(os.environ), verify=verify, as_json=as_json)


@models_app.command("rm")
def models_rm(
    name: Annotated[str, typer.Argument(help="A downloaded model, as `agent models list` names it.")],
) -> None:
    """Remove a downloaded local model. `agent models pull` fetches it again."""
    from backends.llama.models import REGISTERED, is_local, megabytes
    from backends.llama.remove import remove_model

    full = name if is_local(name) else REGISTERED + name
    freed = remove_model(full, Folders.find(os.environ).models)
    sys.stdout.write(f"Removed {full}: {megabytes(freed)}. What it had read stays; `agent cache prune` removes that.\n")


@models_app.command("pull")
def models_pull(
    name: Annotated[str, typer.Argument(help="A name of `agent models list`, or ORG/NAME:QUANT on the hub.")],
) -> None:
    """Download a local model now, or go on with a download that was cut off."""
    from agent.backend_choice import fetch_model
    from agent.terminal import Terminal
    from backends.llama.models import REGISTERED, is_local

    env = dict(os.environ)
    terminal = Terminal(json_lines=False)

    async def pull() -> int:
        full = name if is_local(name) else REGISTERED + name
        model = await fetch_model(full, Folders.find(env), env, terminal.downloads, replace_wrong=True)
        terminal.close()
        sys.stderr.write(f"Use it with: --model {model.name}\n")
        sys.stdout.write(f"{model.path}\n")
        return 0

    try:
        code = run_to_end(pull)
    finally:
        terminal.close()
    raise typer.Exit(code)
