"""A pool that follows a file, in the ways files change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from epp.discovery import FileDiscovery
from epp.errors import ConfigError
from epp.pool import Pool

PATIENCE_S = 20


def text(*ports: int) -> str:
    return "endpoints:\n" + "".join(f"- {{address: 10.0.0.1, port: {port}}}\n" for port in ports)


@dataclass
class Stage:
    pool: Pool
    discovery: FileDiscovery

    def ports(self) -> list[int]:
        return sorted(int(c.address.rpartition(":")[2]) for c in self.pool.candidates())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - files announce nothing
                await asyncio.sleep(0.005)


@asynccontextmanager
async def following(path: Path, *, watch: bool = True) -> AsyncIterator[Stage]:
    pool = Pool()
    discovery = FileDiscovery(pool, path, watch=watch, look_every_s=0.05)
    await discovery.start()
    try:
        yield Stage(pool, discovery)
    finally:
        await discovery.stop()


def rewrite(path: Path, content: str) -> None:
    path.write_text(content)


def rename_into_place(path: Path, content: str) -> None:
    new = path.with_name(".new")
    new.write_text(content)
    new.rename(path)


def remove_and_create(path: Path, content: str) -> None:
    path.unlink()
    path.write_text(content)


@pytest.mark.parametrize("change", [rewrite, rename_into_place, remove_and_create])
def test_every_way_to_change_a_file_is_noticed(tmp_path: Path, change: Callable[[Path, str], None]) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text(1, 2))

    async def scenario() -> None:
        async with following(path) as s:
            assert s.ports() == [1, 2]
            for ports in ((2, 3), (4,), (4, 5, 6)):
                change(path, text(*ports))
                await s.until(lambda ports=ports: s.ports() == list(ports))  # type: ignore[misc]

    asyncio.run(scenario())


def test_a_symbolic_link_that_is_turned_is_followed_as_kubernetes_does_it(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    for version, ports in (("..v1", (1,)), ("..v2", (2, 3))):
        (mount / version).mkdir(parents=True)
        (mount / version / "endpoints.yaml").write_text(text(*ports))
    (mount / "..data").symlink_to("..v1")
    (mount / "endpoints.yaml").symlink_to("..data/endpoints.yaml")

    async def scenario() -> None:
        async with following(mount / "endpoints.yaml") as s:
            assert s.ports() == [1]
            (mount / "..data_tmp").symlink_to("..v2")
            (mount / "..data_tmp").rename(mount / "..data")
            await s.until(lambda: s.ports() == [2, 3])
            (mount / "..v2" / "endpoints.yaml").write_text(text(7))
            await s.until(lambda: s.ports() == [7])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "content", ["", "endpoints: [", "endpoints:\n- {address: 10", "endpoints: [{port: 1}]", "x" * ((1 << 20) + 1)]
)
def test_a_file_that_cannot_be_used_leaves_the_endpoints_and_is_logged_once(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text(1, 2))

    async def scenario() -> None:
        async with following(path) as s:
            rename_into_place(path, content)
            await s.until(lambda: s.discovery.errors > 0)
            assert s.ports() == [1, 2]
            rename_into_place(path, text(3))
            await s.until(lambda: s.ports() == [3])
            assert s.discovery.errors == 1

    asyncio.run(scenario())
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith(str(path))
    assert errors[0].endswith("the endpoints stay as they are")


def test_a_deleted_file_leaves_the_endpoints(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text(1))

    async def scenario() -> None:
        async with following(path) as s:
            path.unlink()
            await s.until(lambda: s.discovery.errors == 1)
            assert s.ports() == [1]

    asyncio.run(scenario())


def test_a_watched_file_may_come_later_and_even_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "later" / "endpoints.yaml"

    async def scenario() -> None:
        async with following(path) as s:
            assert not s.discovery.loaded
            path.parent.mkdir()
            path.write_text(text(1))
            await s.until(lambda: s.discovery.loaded)
            assert s.ports() == [1]

    asyncio.run(scenario())


def test_a_file_that_is_not_watched_must_be_there_and_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"

    async def scenario() -> None:
        with pytest.raises(ConfigError, match=r"endpoints\.yaml: No such file"):
            await FileDiscovery(Pool(), path, watch=False).start()
        path.write_text(text(1))
        async with following(path, watch=False) as s:
            assert (s.ports(), s.discovery.loaded) == ([1], True)

    asyncio.run(scenario())


def test_skipped_entries_are_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text(1) + "- {address: 10.0.0.1, port: 70000}\n")

    async def scenario() -> None:
        async with following(path, watch=False) as s:
            assert s.ports() == [1]

    asyncio.run(scenario())
    assert "endpoints[1]: endpoint '10.0.0.1:70000' is not host:port" in caplog.text


def test_host_names_become_addresses(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: [{address: localhost, port: 1, name: here}, {address: nobody.invalid, port: 2}]")

    async def scenario() -> None:
        async with following(path, watch=False) as s:
            assert [(c.address, c.name) for c in s.pool.candidates()] == [("127.0.0.1:1", "default/here")]

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "endpoints.yaml")

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="not a regular file"):
            await FileDiscovery(Pool(), tmp_path / "endpoints.yaml", watch=False).start()

    asyncio.run(scenario())
