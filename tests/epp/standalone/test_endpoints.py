"""The endpoints file is always complete and equal to the pool."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from epp.pool.pool import Endpoint, Pool
from epp.standalone.endpoints import EndpointsFile, write_endpoints
from tests.e2e.site.background import until


def listed(path: Path) -> list[tuple[str, int]]:
    (resource,) = json.loads(path.read_text())["resources"]
    members = resource["endpoints"][0].get("lbEndpoints", [])
    sockets = [member["endpoint"]["address"]["socketAddress"] for member in members]
    return [(socket["address"], socket["portValue"]) for socket in sockets]


def test_addresses_of_both_families_are_listed(tmp_path: Path) -> None:
    write_endpoints(tmp_path / "e.json", ["10.0.0.7:8000", "[fd00::1]:8001"])
    assert listed(tmp_path / "e.json") == [("10.0.0.7", 8000), ("fd00::1", 8001)]


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    for count in (2, 0):
        write_endpoints(tmp_path / "e.json", ["10.0.0.7:8000", "10.0.0.8:8000"][:count])
        assert len(listed(tmp_path / "e.json")) == count
    assert [path.name for path in tmp_path.iterdir()] == ["e.json"]


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    write_endpoints(path, ["10.0.0.7:8000"])
    with path.open() as opened_before:
        write_endpoints(path, [f"10.0.1.{i}:8000" for i in range(50)])
        assert "10.0.0.7" in opened_before.read()


def test_it_follows_the_pool(tmp_path: Path) -> None:
    async def scenario() -> None:
        path, pool = tmp_path / "e.json", Pool()
        pool.replace([Endpoint("10.0.0.7:8000")])
        file = EndpointsFile(path, [candidate.address for candidate in pool.candidates()])
        pool.listeners.append(file)
        assert listed(path) == [("10.0.0.7", 8000)]
        pool.replace([Endpoint("10.0.0.8:8000"), Endpoint("10.0.0.9:8000")])
        await until(lambda: listed(path) == [("10.0.0.8", 8000), ("10.0.0.9", 8000)])
        pool.replace([])
        await until(lambda: not listed(path))
        await file.close()

    asyncio.run(scenario())


def test_a_write_that_fails_is_counted_and_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder, pool = tmp_path / "here", Pool()
        file = EndpointsFile(folder / "e.json", [], retry_s=0.01)
        pool.listeners.append(file)
        shutil.rmtree(folder)
        folder.touch()  # now no file can be made in it
        pool.replace([Endpoint("10.0.0.7:8000")])
        await until(lambda: file.failures > 1)
        folder.unlink()
        await until(lambda: (folder / "e.json").exists())
        assert listed(folder / "e.json") == [("10.0.0.7", 8000)]
        await file.close()

    asyncio.run(scenario())


def test_a_file_that_was_tidied_up_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "here" / "e.json"
        file = EndpointsFile(path, ["10.0.0.7:8000"], look_every_s=0.01)
        shutil.rmtree(path.parent)
        await until(path.exists)
        assert listed(path) == [("10.0.0.7", 8000)]
        await file.close()

    asyncio.run(scenario())
