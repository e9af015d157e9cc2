"""Which program a container's image stands for."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from epp.standalone.binary import find_envoy
from tests.cluster.environment import Unavailable, program

BIN = Path(sys.executable).parent
SEARCH_PATH = ":".join((str(BIN), "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
NOBODY = 65532
CONFORMANCE = Path(__file__).resolve().parents[3] / "manifests/config/conformance.yaml"
BUILT_HERE = ("echo-basic", "lwepp")
"""Images of one program that is built from its Go module: a backend that tells what reached it, and a picker."""


@dataclass(frozen=True)
class Image:
    """What a container of this image runs where its spec names no command, and as whom."""

    entry: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    user: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    """What a container's own environment may replace."""


class Unknown(Exception):
    """No program stands for this image."""


MIRRORS: dict[str, str] = {}
"""The last part of an image's name, and that of the image which this node runs instead."""


def find(image: str) -> Image:
    """Return the program of ``image``, by the last part of its name. Raises: Unknown."""
    name = re.sub(r"(@.*|:[^/]*)$", "", image).rsplit("/", 1)[-1]
    name = MIRRORS.get(name, name)
    tierwise = str(BIN / "tierwise")
    if name in BUILT_HERE:
        try:
            return Image((str(program(name)),))
        except Unavailable as reason:
            raise Unknown(str(reason)) from None
    known = {
        "tierwise": Image((tierwise,), ("serve",), NOBODY),
        "tierwise-conformance": Image((tierwise, "serve"), (), NOBODY, (("TIERWISE_CONFIG_FILE", str(CONFORMANCE)),)),
        "tierwise-sim": Image((tierwise, "sim"), ("--endpoints", "1", "--host", "0.0.0.0", "--port", "8000")),
        "envoy": Image((str(find_envoy(None)),), ("--config-path", "/etc/envoy/envoy.yaml"), NOBODY),
        "vllm-openai": Image(("vllm",)),
        "busybox": Image(("/bin/sh",)),
        "python": Image((sys.executable,)),
    }
    if name not in known:
        there_are = ", ".join(sorted([*known, *BUILT_HERE]))
        raise Unknown(f"no program stands for the image {image}; known are {there_are}")
    return known[name]


def command(image: Image, spec_command: list[str], spec_arguments: list[str]) -> list[str]:
    """Return the words to run, as Kubernetes puts image and spec together."""
    if spec_command:
        words = [*spec_command, *spec_arguments]
        if Path(words[0]).name == "envoy":  # the image has it at a path that this machine has not
            words[0] = str(find_envoy(None))
        return simulated(words) if words[:2] == ["vllm", "serve"] else words
    return [*image.entry, *(spec_arguments or image.arguments)]


def simulated(words: list[str]) -> list[str]:
    """Return the simulated engine that stands for ``vllm serve MODEL --port=N ...``: no GPU is here."""
    (port,) = (word.partition("=")[2] for word in words if word.startswith("--port="))
    serve = ["--preset", "qwen3-32b-tp2-h100", "--endpoints", "1", "--host", "0.0.0.0", "--port", port]
    return [str(BIN / "tierwise"), "sim", *serve, "--served-model-name", words[2]]


def needed() -> list[Path]:
    """Return the folders that programs are in, which a container must see."""
    folders = [Path(__file__).resolve().parents[3], Path(sys.prefix), Path(sys.base_prefix)]
    go = shutil.which("go")
    return [*folders, Path(go).parent] if go else folders
