"""The instructions of the Dockerfile, for running its stages without a container."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word in capitals, and the rest of its lines as one."""

    word: str
    rest: str


def stages() -> tuple[list[Instruction], list[Instruction], list[Instruction]]:
    """What stands before the first stage, the stage that builds, and the stage that runs; comments are left out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    found: list[list[Instruction]] = [[]]
    for word, _, rest in (line.partition(" ") for line in lines if line.strip()):
        if word == "FROM":
            found.append([])
        found[-1].append(Instruction(word, rest.strip()))
    before, build, run = found
    return before, build, run


def rests(stage: list[Instruction], word: str) -> list[str]:
    """The instructions of one kind, in their order."""
    return [each.rest for each in stage if each.word == word]


def pairs(stage: list[Instruction], word: str) -> dict[str, str]:
    """The variables of ENV, or the labels of LABEL."""
    return {
        name: value for rest in rests(stage, word) for name, _, value in (w.partition("=") for w in shlex.split(rest))
    }


def words(stage: list[Instruction], word: str) -> list[str]:
    """The words of ENTRYPOINT or CMD in exec form. Raises: ValueError for the form that a shell would run."""
    (rest,) = rests(stage, word)
    found: list[str] = json.loads(rest)
    return found
