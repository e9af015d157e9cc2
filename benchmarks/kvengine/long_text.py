"""A long invented text: sentences of a manual that does not exist, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

SUBJECTS = ("The shell", "A function", "Every job", "The command", "An alias", "The history list", "A subshell",
            "The parser", "Each argument", "The prompt", "A signal handler", "The working directory")  # fmt: skip
VERBS = ("expands", "reads", "ignores", "replaces", "exports", "evaluates", "splits", "prints", "inherits", "restores")
OBJECTS = ("the first word", "its standard input", "every open file", "the exit status", "positional parameters",
           "the value of the variable", "all quoted characters", "the name of the option", "a pipeline",
           "the remaining fields", "what was typed before", "the most recent background process")  # fmt: skip
ENDS = ("before the next line is read", "unless the option is set", "when it returns", "in the order of appearance",
        "as if it had been quoted", "after all expansions", "and nothing else", "until the list is empty",
        "if the descriptor is open", "without a trailing newline")  # fmt: skip


def sentences(seed: int) -> Iterator[str]:
    """Yield sentences without end; equal seeds give equal sentences."""
    random = Random(seed)
    parts = (SUBJECTS, VERBS, OBJECTS, ENDS)
    while True:
        yield f"{' '.join(random.choice(part) for part in parts)} ({random.randrange(1000)}). "


def long_text(characters: int, seed: int = 0) -> str:
    """Return the first ``characters`` of the seed's sentences."""
    text: list[str] = []
    length = 0
    for sentence in sentences(seed):
        if length >= characters:
            break
        text.append(sentence)
        length += len(sentence)
    return "".join(text)[:characters]
