"""`agent run --lens`: each reply of a local model as a page in the data folder, named in one line."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from agent.reports.lens import LensReport
from agent.reports.lens_html import lens_page
from backends.llama.lens import Seen
from backends.llama.sampling import Sampling
from context.names import show_name


class LensPages:
    """`write` may be called in another thread, and `announce` is then called there. The run goes on whatever happens
    here: a page that cannot be written is told.
    """

    def __init__(
        self,
        model: str,
        sampling: Sampling,
        folder: Path,
        now: Callable[[], datetime],
        announce: Callable[[str], None],
    ) -> None:
        self._model: Final = model
        self._sampling: Final = sampling
        self._folder: Final = folder
        self._now: Final = now
        self._announce: Final = announce

    def write(self, seen: Seen) -> None:
        page = lens_page(LensReport(self._model, self._sampling, seen))
        try:
            path = self._new_file(page)
        except OSError as error:
            self._announce(
                f"The lens of this reply cannot be written ({error.strerror or error}); the reply is kept. "
                f"Make {show_name(str(self._folder))} a writable folder."
            )
            return
        self._announce(f"Lens of this reply: {show_name(str(path))}")

    def _new_file(self, page: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        second, number = f"{self._now():%Y%m%d-%H%M%S}", 1
        while True:
            path = self._folder / f"{second}-{number}.html"
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(page)
                return path
            except FileExistsError:  # another reply of the same second
                number += 1
