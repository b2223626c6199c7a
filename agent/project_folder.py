"""The folder `.keepwarm` of a repository: settings and commands that come with it.

It may be a stranger's: what is read from it is a plain file of that folder, never what a symlink leads to.
"""

from pathlib import Path
from typing import Final

NAME: Final = ".keepwarm"


def project_folder(directory: Path, config: Path) -> Path | None:
    """The folder for whoever works in `directory`: that of the repository's root, or `directory`'s own where there is
    no repository. None: there is none. `config`: the person's own folder, which is never taken for a project's.
    """
    root = next((folder for folder in (directory, *directory.parents) if (folder / ".git").exists()), directory)
    folder = root / NAME
    if folder.is_symlink() or not folder.is_dir() or folder.resolve() == config.resolve():
        return None
    return folder
