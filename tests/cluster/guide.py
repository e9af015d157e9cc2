"""The commands of a guide page, in the order of the page, with what it says that they print.

A block of commands is ```bash; a block of ```text right behind it is its output. A comment before a block of commands
keeps it from being run: ``<!-- not run: REASON -->``, or ``<!-- mode: NAME -->`` in every other mode.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|mode): (?P<why>[^\n]*) -->\n)?^```bash\n(?P<commands>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
COMPARED = ("NAME", "READY", "STATUS", "CLASS", "HOSTNAMES", "CAPACITY", "ACCESS MODES")
"""The columns of kubectl's tables that do not depend on the time, the cloud or chance."""


@dataclass(frozen=True)
class Step:
    """One block of commands."""

    commands: str
    output: str
    not_run: str = ""
    mode: str = ""


def steps(page: Path) -> list[Step]:
    """The blocks of a page."""
    return [
        Step(
            each["commands"],
            each["output"] or "",
            not_run=each["why"] if each["mark"] == "not run" else "",
            mode=each["why"] if each["mark"] == "mode" else "",
        )
        for each in BLOCK.finditer(page.read_text())
    ]


class Shell:
    """A user's shell: what one block exports, the next ones have. ``instead`` replaces what the page exports."""

    def __init__(self, environment: Mapping[str, str], instead: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._instead = instead

    def run(self, commands: str, timeout_s: float = 150.0) -> str:
        """Run a block, and return what it prints. Raises: AssertionError if a command of it fails."""
        for name, value in self._instead.items():
            commands = re.sub(rf"^export {name}=.*$", f"export {name}={value}", commands, flags=re.MULTILINE)
        read, write = os.pipe()
        commands = commands.replace("--timeout=60m", f"--timeout={timeout_s / 2:.0f}s")
        script = f"set -eo pipefail\n{commands}\nenv -0 >&{write}\n"
        try:
            ran = subprocess.run(
                ["bash", "-c", script], env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False,
                timeout=timeout_s, pass_fds=(write,),
            )  # fmt: skip
        finally:
            os.close(write)
        with os.fdopen(read, "rb") as pipe:
            variables = pipe.read().split(b"\0")
        assert ran.returncode == 0, f"{commands}\n{ran.stdout}\n{ran.stderr}"
        self.environment = dict(each.decode().partition("=")[::2] for each in variables if each)  # type: ignore[misc]
        return ran.stdout


def rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of a table as kubectl prints it, by column; cells begin where their headings do."""
    header, *lines = table.strip("\n").splitlines()
    starts = [(match.start(), match[0]) for match in re.finditer(r"\S+(?: \S+)*", header)]
    for line in lines:
        ends = [start for start, _ in starts[1:]] + [len(line)]
        yield {name: line[start:end].strip() for (start, name), end in zip(starts, ends, strict=True)}


def as_expected(printed: str, expected: str) -> bool:
    """Whether a block printed what its page says: the same text, or a table with the same cells.

    Four or more ``x`` in a name stand for letters and figures that Kubernetes chooses.
    """
    if not expected.startswith("NAME "):
        return printed == expected
    found, wanted = list(rows(printed)), list(rows(expected))
    return len(found) == len(wanted) and all(
        re.fullmatch(re.sub("x{4,}", "[a-z0-9]+", re.escape(want[column])), have.get(column, "")) is not None
        for have, want in zip(found, wanted, strict=True)
        for column in COMPARED
        if column in want
    )
