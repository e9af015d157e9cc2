"""The layering that docs/architecture.md promises: imports point down, heavy libraries live in one place each."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("epp", "scorers", "kvengine")

# Each heavy library and the one module or folder that may import it.
HOME = {
    "aiohttp": (
        "epp/scrape/",
        "epp/server/admin.py",
        "epp/ports/http_port.py",
        "epp/explain/",
        "epp/kube/client.py",
        "epp/lab/engine/",
        "epp/lab/demo/",
        "epp/tokens/remote.py",
    ),
    "betterproto2": ("epp/standalone/",),
    "cel": ("epp/picking/usage_reporter.py",),
    "click": ("epp/commandline/cli.py",),
    "cryptography": ("epp/ports/tls.py",),
    "cuda": ("kvengine/cuda/bindings.py",),
    "envoy_data_plane": ("epp/standalone/",),
    "google.protobuf": (
        "epp/pb/",
        "epp/extproc/service.py",
        "epp/extproc/messages.py",
        "epp/extproc/access_log.py",
        "epp/server/health.py",
        "epp/parsers/grpc_body.py",
    ),
    "grpc": ("epp/wire/aio.py",),
    "grpc_health": (),
    "hpack": ("epp/wire/",),
    "httptools": ("epp/scrape/",),
    "jinja2": ("epp/tokens/model/template.py", "epp/tokens/model/content_format.py"),
    "kubernetes_asyncio": ("epp/kube/kubeconfig/reader.py",),
    "matplotlib": ("epp/lab/fleet/plots.py",),
    "opentelemetry": ("epp/tracing/spans.py", "epp/tracing/exporters.py"),
    "prometheus_client": (
        "epp/metrics/",
        "epp/server/admin.py",
        "epp/lab/engine/",
        "epp/lab/demo/",
        "kvengine/connector/",
    ),
    "rich": (
        "epp/lab/demo/",
        "epp/doctor/report.py",
        "epp/explain/",
        "epp/printing/",
        "epp/lab/fleet/",
        "epp/lab/size/",
        "epp/lab/tune/",
        "epp/commandline/cli.py",
    ),
    "tokenizers": ("epp/tokens/model/vocabulary.py",),
    "torch": ("kvengine/",),
    "uvloop": ("epp/server/command.py",),
    "vllm": ("kvengine/connector/", "kvengine/plugin.py"),
    "watchfiles": ("epp/runtime/followed_files.py",),
    "xxhash": ("scorers/",),
    "zmq": ("epp/kvevents/", "epp/lab/engine/"),
    "yaml": ("epp/config/", "epp/discovery/", "epp/lab/values/", "kvengine/settings/"),
}


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


@cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def uses(imported: frozenset[str], library: str) -> bool:
    return any(name == library or name.startswith(library + ".") for name in imported)


@pytest.mark.parametrize("library", sorted(HOME))
def test_each_heavy_library_is_imported_in_its_home_only(library: str) -> None:
    strangers = [
        str(path.relative_to(ROOT))
        for path in modules()
        if uses(imports(path), library) and not str(path.relative_to(ROOT)).startswith(HOME[library])
    ]
    assert not strangers, f"{library} belongs into {HOME[library]}; also imported in {strangers}"


def test_imports_point_down() -> None:
    for path in modules():
        package = path.relative_to(ROOT).parts[0]
        imported = imports(path)
        if package == "scorers":
            assert not uses(imported, "epp"), f"{path}: scorers must not import epp"
        if package in ("scorers", "epp"):
            assert not uses(imported, "kvengine"), f"{path}: kvengine stands alone"
        if package == "kvengine":
            assert not uses(imported, "epp"), f"{path}: kvengine stands alone"
            assert not uses(imported, "scorers"), f"{path}: kvengine stands alone"


def test_the_simulator_shares_no_code_with_the_scorers() -> None:
    engine = list((ROOT / "epp" / "lab" / "engine").rglob("*.py"))
    assert engine
    for path in engine:
        assert not uses(imports(path), "scorers"), f"{path}: the simulated engine must not know the picker's index"


def test_the_scorers_need_only_the_base_dependencies() -> None:
    """A third party's plugin, or a library user, installs `tierwise` without extras."""
    allowed = {"msgspec", "xxhash", "scorers", "typing_extensions"} | set(sys.stdlib_module_names)
    for path in (ROOT / "scorers").rglob("*.py"):
        heads = {name.partition(".")[0] for name in imports(path)}
        assert heads <= allowed, f"{path}: {heads - allowed}"


def test_importing_the_command_line_imports_no_server_library() -> None:
    """`tierwise --help` answers at once."""
    heavy = {"aiohttp", "grpc", "google.protobuf", "prometheus_client", "uvloop"}
    code = f"import sys, epp.commandline.cli; print(sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def rooms() -> set[str]:
    """Paths that the table of docs/architecture.md names; a name without a folder lies beside the one before it."""
    found: set[str] = set()
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if not line.startswith("| `"):
            continue
        package = ""
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]):
            head, slash, _ = name.partition("/")
            whole = bool(slash) and (ROOT / head).is_dir()
            package = head if whole else package
            found.add(name if whole else f"{package}/{name}")
    return {name for name in found if "<" not in name}


def test_the_page_on_architecture_names_no_room_that_is_not_there() -> None:
    assert not [name for name in sorted(rooms()) if not (ROOT / name).exists()]


def test_every_folder_with_code_has_its_room_on_the_page_on_architecture() -> None:
    named = rooms()
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in modules()} - {f"{package}/" for package in PACKAGES}
    assert len(folders) > 20
    assert not sorted(folders - named)


FLOORS = (
    "scorers/",
    "scorers/index/",
    "scorers/prefix/",
    "scorers/precise/",
    "scorers/labels/",
    "scorers/affinity/",
    "scorers/load/",
    "scorers/cost/",
    "scorers/__init__.py",
    "epp/",
    "epp/pb/",
    "epp/printing/",
    "epp/parsers/",
    "epp/catalog/",
    "epp/metrics/",
    "epp/runtime/",
    "epp/tracing/",
    "epp/ports/",
    "epp/flags/",
    "epp/kube/",
    "epp/kube/kubeconfig/",
    "epp/kube/election/",
    "epp/pool/",
    "epp/wire/http2/",
    "epp/wire/",
    "epp/scrape/reading/",
    "epp/scrape/",
    "epp/served/",
    "epp/kvevents/",
    "epp/kvevents/follower/",
    "epp/flowcontrol/",
    "epp/tokens/model/",
    "epp/tokens/",
    "epp/picking/",
    "epp/config/",
    "epp/config/wiring/",
    "epp/extproc/",
    "epp/explain/",
    "epp/discovery/",
    "epp/resources/",
    "epp/server/",
    "epp/standalone/",
    "epp/doctor/",
    "epp/lab/",
    "epp/lab/engine/",
    "epp/lab/fleet/",
    "epp/lab/tune/",
    "epp/lab/size/",
    "epp/lab/demo/",
    "epp/lab/values/",
    "epp/commandline/",
    "epp/__main__.py",
)
"""The rooms of the picker from the ground up: each imports only rooms that stand before it, annotations included. A
file has a floor of its own where it stands above the folder that it lies in."""

UPWARD: frozenset[tuple[str, str]] = frozenset()
"""Imports that still run up, as pairs of files; one that is gone is taken out."""
MOST_MODULES = 20
"""Of a room outside of ``epp/lab/``."""
MOST_LOOSE = {"epp/": 7, "scorers/": 6}


def layered() -> dict[str, str]:
    """Return the path of each module of the picker by its dotted name."""
    found = {}
    for path in modules():
        relative = path.relative_to(ROOT)
        if relative.parts[0] != "kvengine":
            name = ".".join(relative.with_suffix("").parts)
            found[name.removesuffix(".__init__")] = str(relative)
    return found


def imported_files(path: str, by_name: dict[str, str]) -> set[str]:
    """Return the files of the picker that the file at ``path`` imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in by_name else node.module for name in names)
    return {by_name[name] for name in found if name in by_name} - {path}


def floor(path: str) -> int:
    """Return the place in ``FLOORS`` of the room that the file at ``path`` belongs to."""
    return FLOORS.index(path if path in FLOORS else path.rpartition("/")[0] + "/")


def test_a_room_imports_only_the_rooms_below_it() -> None:
    by_name = layered()
    up = {
        (path, other)
        for path in by_name.values()
        for other in imported_files(path, by_name)
        if floor(other) > floor(path)
    }
    assert sorted(up - UPWARD) == []
    assert sorted(UPWARD - up) == [], "these imports do not run up any more; take them out of UPWARD"


def test_no_files_import_each_other_in_a_circle() -> None:
    by_name = layered()
    order = TopologicalSorter({path: imported_files(path, by_name) for path in by_name.values()})
    order.prepare()  # raises CycleError, which names the circle


def test_no_room_is_crowded() -> None:
    rooms = Counter(path.rpartition("/")[0] + "/" for path in layered().values() if not path.endswith("__init__.py"))
    rooms += Counter(
        f"{path.parent.relative_to(ROOT)}/"
        for path in modules()
        if path.name == "__init__.py" and f"{path.parent.relative_to(ROOT)}/" in MOST_LOOSE
    )
    crowded = {
        room: count
        for room, count in rooms.items()
        if count > MOST_LOOSE.get(room, MOST_MODULES) and not room.startswith("epp/lab/")
    }
    assert crowded == {}
