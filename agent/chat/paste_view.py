"""How a large paste looks in the input: as its label, in the place of the one character that stands for it."""

import bisect
from itertools import accumulate
from typing import Final

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

from agent.chat.paste import Pastes

_STYLE: Final = "class:pasted"


class PasteView(Processor):
    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        characters = explode_text_fragments(transformation_input.fragments)
        labels = [self._pastes.label(text) if len(text) == 1 else None for _, text, *_ in characters]
        if not any(labels):
            return Transformation(transformation_input.fragments)
        shown: StyleAndTextTuples = [
            fragment if label is None else (f"{fragment[0]} {_STYLE}", label)
            for fragment, label in zip(characters, labels, strict=True)
        ]
        starts = list(accumulate((len(text) for _, text, *_ in shown), initial=0))

        def to_display(place: int) -> int:
            return starts[place] if place < len(starts) else starts[-1] + place - len(starts) + 1

        def to_source(place: int) -> int:
            return bisect.bisect_right(starts, place) - 1

        return Transformation(shown, source_to_display=to_display, display_to_source=to_source)
