"""What kubectl builds of a kustomization, and the objects in it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.environment import Unavailable, program

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
GIB = 1 << 30
UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": GIB, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

Object = dict[str, Any]


def kubectl() -> str:
    """The program, as `make test-cluster` builds it, or the system's. Skips the test where there is none."""
    try:
        return str(program("kubectl"))
    except Unavailable as reason:
        found = shutil.which("kubectl")
        if found is None:
            pytest.skip(str(reason))
        return found


@cache
def build(folder: Path) -> list[Object]:
    """The objects of a folder with a kustomization."""
    ran = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{folder}: {ran.stderr}"
    return list(yaml.safe_load_all(ran.stdout))


def names(objects: list[Object]) -> set[tuple[str, str]]:
    """What a deletion finds the objects by."""
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def amount(text: object) -> int:
    """The bytes, or the count, of a quantity of Kubernetes."""
    number = str(text).rstrip("KMGTik")
    return int(float(number) * UNITS[str(text)[len(number) :]])


@dataclass(frozen=True)
class ModelServer:
    """The one container with vLLM of a Deployment, and what the tests ask of it."""

    deployment: Object

    @property
    def pod(self) -> Object:
        return self.deployment["spec"]["template"]

    @property
    def container(self) -> Object:
        (container,) = self.pod["spec"]["containers"]
        return container

    def flag(self, name: str) -> str | None:
        """The value of a flag of vLLM."""
        found = [each.partition("=")[2] for each in self.container["args"] if each.partition("=")[0] == f"--{name}"]
        assert len(found) <= 1, f"--{name} is given {len(found)} times"
        return found[0] if found else None

    def transfer(self) -> Object:
        """The connector's configuration; empty without one."""
        return json.loads(self.flag("kv-transfer-config") or "{}")

    def variable(self, name: str) -> str | None:
        """The value of an environment variable."""
        return {each["name"]: each.get("value") for each in self.container["env"]}.get(name)

    def volume(self, name: str) -> Object | None:
        """A volume of the pod."""
        return next((each for each in self.pod["spec"]["volumes"] if each["name"] == name), None)

    @property
    def shm(self) -> int:
        """How many bytes /dev/shm may have."""
        volume = self.volume("shm")
        assert volume
        assert volume["emptyDir"]["medium"] == "Memory"
        return amount(volume["emptyDir"]["sizeLimit"])


def model_server(objects: list[Object]) -> ModelServer:
    """The Deployment among the objects."""
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    return ModelServer(deployment)
