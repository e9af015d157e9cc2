"""What helm renders of a chart, as parsed objects; the sentence with which it fails; and what NOTES prints."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from epp.flags.arguments import normalise
from epp.server.flags import SERVE, serve_options
from epp.server.options import ServeOptions
from tests.charts.helm import CHARTS, program

NAMESPACE = "llm"
LABELS = {"app": "qwen"}

Object = dict[str, Any]
Values = Mapping[str, object]


@dataclass(frozen=True)
class Rendered:
    """The objects of a release, by kind and name."""

    objects: tuple[Object, ...]

    def of(self, kind: str, name: str | None = None) -> list[Object]:
        """Return the objects of a kind, or those of them with a name."""
        return [each for each in self.objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]

    def one(self, kind: str, name: str | None = None) -> Object:
        """Return the only such object."""
        [found] = self.of(kind, name)
        return found

    def names(self, kind: str) -> list[str]:
        """Return the names of the objects of a kind."""
        return [each["metadata"]["name"] for each in self.of(kind)]

    @property
    def workload(self) -> Object:
        """The Deployment or StatefulSet of the picker."""
        [found] = [
            each
            for each in (*self.of("Deployment"), *self.of("StatefulSet"))
            if each["metadata"]["name"].endswith("-epp")
        ]
        return found

    @property
    def pod(self) -> Object:
        """The specification of the picker's pods."""
        spec: Object = self.workload["spec"]["template"]["spec"]
        return spec

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the picker's pods."""
        found: dict[str, str] = self.workload["spec"]["template"]["metadata"]["annotations"]
        return found

    def container(self, name: str = "epp") -> Object:
        """Return a container of the picker's pods."""
        [found] = [each for each in self.pod["containers"] if each["name"] == name]
        return found

    @property
    def arguments(self) -> list[str]:
        """The arguments of the picker."""
        found: list[str] = self.container()["args"]
        return found

    @property
    def files(self) -> dict[str, str]:
        """The files of the picker's ConfigMap."""
        found: dict[str, str] = self.one("ConfigMap", self.workload["metadata"]["name"])["data"]
        return found

    @property
    def envoy(self) -> Object:
        """The configuration of the proxy."""
        [found] = [each["data"]["envoy.yaml"] for each in self.of("ConfigMap") if "envoy.yaml" in each["data"]]
        parsed: Object = yaml.safe_load(found)
        return parsed


def pool_values(tree: str, **more: object) -> dict[str, object]:
    """Return the least values of a tree: the labels of the pods."""
    if tree == "router":
        return {"router": {"modelServers": {"matchLabels": LABELS}, **more}}
    return {"inferencePool": {"modelServers": {"matchLabels": LABELS}}, "inferenceExtension": more}


def run(chart: Path, values: Values, *arguments: str, release: str) -> subprocess.CompletedProcess[str]:
    """Return what helm has printed about a release that is not installed."""
    return subprocess.run(
        [program(), "template", release, str(chart), "--namespace", NAMESPACE, "--values", "-", *arguments],
        input=yaml.safe_dump(dict(values)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def render(chart: str, values: Values, *arguments: str, release: str = "llm-d-infpool") -> Rendered:
    """Return what a release consists of."""
    done = run(CHARTS / chart, values, *arguments, release=release)
    assert done.returncode == 0, done.stderr
    return Rendered(tuple(each for each in yaml.safe_load_all(done.stdout) if each))


def notes(chart: str, values: Values, folder: Path, *arguments: str) -> str:
    """Return what NOTES says; ``folder`` becomes a copy of the chart with NOTES as an object, which helm prints."""
    for part in ("Chart.yaml", "values.yaml", "charts"):
        (folder / part).symlink_to(CHARTS / chart / part)
    (folder / "templates").mkdir()
    include = (CHARTS / chart / "templates" / "NOTES.txt").read_text().strip().strip("{}-").strip()
    (folder / "templates" / "notes.yaml").write_text(f"notes: {{{{ {include} | quote }}}}\n")
    done = run(folder, values, *arguments, release="llm-d-infpool")
    assert done.returncode == 0, done.stderr
    text: str = yaml.safe_load(done.stdout)["notes"]
    return text


def refusal(chart: str, values: Values, *arguments: str, release: str = "llm-d-infpool") -> str:
    """Return the sentence with which helm refuses a release."""
    done = run(CHARTS / chart, values, *arguments, release=release)
    assert done.returncode != 0, "the release is accepted"
    return done.stderr


def understood(arguments: list[str], environment: Mapping[str, str] | None = None) -> ServeOptions:
    """Return the options that ``tierwise serve`` makes of arguments. Raises: ConfigError."""
    flags = {flag.name: flag for flag in SERVE}
    given: dict[str, Any] = {}
    for word in normalise(arguments, SERVE):
        name, equals, text = word.removeprefix("--").partition("=")
        assert equals, f"{word} is no flag with a value"
        value = flags[name].read(text)
        given[name] = (*given.get(name, ()), value) if flags[name].repeated else value
    return serve_options(given, {"POD_NAME": "picker-5b-x", "NAMESPACE": NAMESPACE} | dict(environment or {}))
