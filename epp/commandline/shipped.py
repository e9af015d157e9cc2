"""The command ``tierwise print``: the configurations, dashboards and manifests of the distribution.

They are files of ``manifests/``, to which ``epp/manifests`` links, so that a wheel has them too; and ``default``, which
is made from the code. What only kubectl and helm read is not among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from textwrap import wrap

import msgspec

from epp.commandline.options import PrintOptions
from epp.config.defaults import written_default
from epp.errors import ConfigError

FOLDERS = ("config", "dashboards", "envoy")
"""The folders of ``manifests/`` whose files a wheel has; ``package-data`` in pyproject.toml names them too."""
DEFAULT = "default"
ABOUT_DEFAULT = "The profile that is in force where no configuration is given."


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file of ``manifests/``."""

    folder: str
    stem: str
    file: Traversable

    @property
    def name(self) -> str:
        """The name of the file for the command; its last part suffices if only one file has it."""
        return f"{self.folder}/{self.stem}"

    def about(self) -> str:
        """Return the first sentence of its first comment, or its title."""
        text = self.file.read_text(encoding="utf-8")
        if self.file.name.endswith(".json"):
            return msgspec.json.decode(text, type=_Titled).title
        comment: list[str] = []
        for line in text.splitlines():
            if not line.startswith("#"):
                break
            comment.append(line.lstrip("# "))
        sentence, dot, _ = " ".join(comment).partition(". ")
        return sentence + dot.strip()


class _Titled(msgspec.Struct):
    title: str = ""


def run_print(options: PrintOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for an unknown name."""
    if options.name is None:
        list_names()
        return 0
    text = (
        written_default() if options.name == DEFAULT else find(options.name, tuple(shipped())).file.read_text("utf-8")
    )
    print(text, end="")
    return 0


def shipped() -> Iterator[Shipped]:
    """Yield every file, by folder and name."""
    for folder in FOLDERS:
        for file in sorted((files("epp") / "manifests" / folder).iterdir(), key=lambda each: each.name):
            yield Shipped(folder, file.name.rpartition(".")[0], file)


def find(name: str, among: Sequence[Shipped]) -> Shipped:
    """Return the file with this name: the whole name, its last part, or its folder if it is alone there.

    Raises: ConfigError listing the names.
    """
    for meant in (
        [each for each in among if each.name == name],
        [each for each in among if each.stem == name],
        [each for each in among if each.folder == name],
    ):
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise ConfigError(f"{name!r} may be {' or '.join(each.name for each in meant)}; give one of them")
    known = [DEFAULT, *(word for each in among for word in (each.name, each.stem, each.folder))]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join([DEFAULT, *(each.name for each in among)])}"
    raise ConfigError(f"there is nothing called {name!r}; {hint}")


def list_names() -> None:
    """Print every name with its description."""
    for name, about in [(DEFAULT, ABOUT_DEFAULT), *((each.name, each.about()) for each in shipped())]:
        first, *more = wrap(about, 54) or [""]
        print(f"{name:<24}{first}")
        for line in more:
            print(f"{'':<24}{line}")
