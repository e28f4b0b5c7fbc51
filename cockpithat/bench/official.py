"""The rules of the Who&When evaluation script, as they behave (``Automated_FA/evaluate.py``).

The script reads answers as text. Its rules, kept with their effects:

- A block begins with ``Prediction for <file>.json:`` and ends before the next ``Prediction for``; a file
  name holds no colon. A later block of the same file replaces an earlier one.
- ``Agent Name:`` takes word characters only, so ``Data-Analyst`` is read as ``Data``, and a name in
  markdown bold or in brackets is not read. ``Step Number:`` takes the digits that follow.
- A block counts only when both are found: an answer without a step number loses its agent, too.
- A prediction is right when the *gold text is a part of the prediction*: gold ``1`` matches 1, 10 and 21,
  gold ``Coder`` matches ``Coder_2``; not the other way round.
- The denominator is the number of labelled files, answered or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MARK = "Prediction for"
_SUFFIX = ".json"
_AGENT = re.compile(r"Agent Name:\s*([\w_]+)", re.IGNORECASE)
_STEP = re.compile(r"Step Number:\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the script reads from one block, as text."""

    agent: str
    step: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of all labelled files."""

    agent: float
    step: float


def answer_text(agent: str | None, step: int | None) -> str:
    """An answer in the form that the script's prompts ask for."""
    return f"Agent Name: {agent or ''}\nStep Number: {'' if step is None else step}\n"


def read_answer(text: str) -> Prediction | None:
    """Agent and step of one answer, or ``None`` where the script warns that it cannot parse it."""
    text = text.strip()
    agent, step = _AGENT.search(text), _STEP.search(text)
    return Prediction(agent[1], step[1]) if agent and step else None


def read_predictions(text: str) -> dict[str, Prediction]:
    """All predictions in a log of the script's form, by file name."""
    return {
        name: prediction for name, answer in _blocks(text) if (prediction := read_answer(answer)) is not None
    }


def agent_right(prediction: Prediction | None, gold: str) -> bool:
    """Gold text is a part of the predicted name; case counts."""
    return prediction is not None and gold in prediction.agent


def step_right(prediction: Prediction | None, gold: str) -> bool:
    """Gold digits are a part of the predicted digits."""
    return prediction is not None and gold in prediction.step


def accuracy(predictions: Mapping[str, Prediction], gold: Mapping[str, tuple[str, str]]) -> Accuracy:
    """``gold`` holds agent and step as written, by file name, of all labelled files."""
    total = len(gold) or 1
    agent = sum(agent_right(predictions.get(name), label[0]) for name, label in gold.items())
    step = sum(step_right(predictions.get(name), label[1]) for name, label in gold.items())
    return Accuracy(agent / total, step / total)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Name and answer of each block, as ``Prediction for ([^:]+\\.json):(.*?)(?=Prediction for|\\Z)`` finds.

    A scan instead of that pattern, which takes quadratic time on a log without colons. As there, a name
    reaches to the next colon, over lines and further marks if need be.
    """
    place, colon = 0, -1
    while (mark := text.find(_MARK + " ", place)) >= 0:
        opened = mark + len(_MARK) + 1
        if colon < opened and (colon := text.find(":", opened)) < 0:
            return
        name = text[opened:colon]
        if len(name) > len(_SUFFIX) and name.endswith(_SUFFIX):
            following = text.find(_MARK, colon + 1)
            place = following if following >= 0 else len(text)
            yield name.strip(), text[colon + 1 : place]
        else:
            place = mark + 1
