"""What of a reply is on the screen already, so that a call that is made again repeats nothing that can be seen."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Shown:
    """`text` of the current call that is on the screen; `matched`: characters of it that the call made again has said.

    None: the call is not made again, or says something else.
    """

    text: str = ""
    matched: int | None = None

    def again(self) -> "Shown":
        """The call is made again, from its beginning."""
        return replace(self, matched=0) if self.text else Shown()

    def plus(self, piece: str) -> "tuple[Shown, str, bool]":
        """With a further piece of the reply: what is shown then, what of it is to be written now, and whether the reply
        turned out to differ from the one before (then all of it is to be written, on a new line).
        """
        if self.matched is None:
            return Shown(self.text + piece), piece, False
        said = self.text[: self.matched] + piece
        if self.text.startswith(said):
            return Shown(self.text, len(said)), "", False
        if said.startswith(self.text):
            return Shown(said), said[len(self.text) :], False
        return Shown(said), said, True
