"""What the Dockerfile and its lock files say, without running anything."""

from __future__ import annotations

import re
from importlib.metadata import distributions

import pytest
from packaging.utils import canonicalize_name

from image.lock import EXTRAS
from tests.image.dockerfile import ROOT, pairs, rests, stages, words
from tests.installed import NAME, needed

LOCKED = re.compile(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
LOCKS = {name: ROOT / "image" / f"{name}.txt" for name in ("requirements", "build-requirements")}


def locked(name: str) -> dict[str, tuple[str, int]]:
    """The version of each distribution, and how many hashes it has."""
    text = LOCKS[name].read_text()
    found = {canonicalize_name(each[1]): (each[2], each[3].count("--hash")) for each in LOCKED.finditer(text)}
    assert len(found) == text.count("=="), "every line of the file is understood"
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_the_locked_versions_are_those_of_the_constraints(lock: str) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines if "==" in line}
    assert {name: version for name, (version, _) in locked(lock).items() if pinned[name] != version} == {}


def test_all_that_the_image_needs_is_locked_and_nothing_else() -> None:
    found = next((each for each in distributions(name=NAME)), None)
    assert found is not None
    wanted = {canonicalize_name(each.name) for each in needed(found, frozenset(EXTRAS))}
    assert set(locked("requirements")) == wanted


def test_a_wheel_with_machine_code_is_locked_for_both_architectures() -> None:
    found = locked("requirements")
    assert {count for _, count in found.values()} <= {1, 2}
    assert all(found[name][1] == 2 for name in ("aiohttp", "msgspec", "uvloop", "grpcio", "xxhash", "tokenizers"))


def test_both_stages_have_the_same_base_which_a_release_gives_with_its_digest() -> None:
    before, build, run = stages()
    assert rests(before, "ARG") == ["BASE=python:3.11-slim-bookworm"]
    assert (rests(build, "FROM"), rests(run, "FROM")) == (["${BASE} AS build"], ["${BASE}"])


def test_every_installation_is_of_wheels_with_hashes_or_of_the_wheel_made_here() -> None:
    _, build, run = stages()
    installs = [rest for rest in rests(build, "RUN") if " install " in rest]
    assert len(installs) == 3
    for command in installs:
        assert "--no-deps" in command
        assert ("--require-hashes" in command and "--only-binary :all:" in command) or "--no-index" in command
    assert not rests(run, "RUN"), "the last stage runs nothing, so no shell has been in it"


def test_the_process_is_the_entry_point_itself_and_no_root() -> None:
    _, _, run = stages()
    assert words(run, "ENTRYPOINT") + words(run, "CMD") == ["tierwise", "serve"]
    user, group = rests(run, "USER")[0].split(":")
    assert int(user) > 0, "Kubernetes judges runAsNonRoot by a number, not by a name"
    assert int(group) > 0


def test_the_labels_are_those_of_the_project() -> None:
    _, _, run = stages()
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in pairs(run, "LABEL").items()}
    assert labels.keys() == {"title", "description", "licenses", "version", "revision"}
    assert (labels["title"], labels["licenses"]) == (NAME, "Apache-2.0")
    pyproject = (ROOT / "pyproject.toml").read_text()
    (version,) = (each.partition("=")[2] for each in rests(run, "ARG") if each.startswith("VERSION="))
    assert f'version = "{version}"' in pyproject


def test_what_is_copied_is_let_into_the_build_and_nothing_else() -> None:
    _, build, _ = stages()
    copied = {source for rest in rests(build, "COPY") for source in rest.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / each).exists() for each in copied)
