"""A pool that follows a file, in all the ways in which files change."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from epp.discovery.file import FileDiscovery
from epp.errors import ConfigError
from epp.pool.pool import MAX_ENDPOINTS, Pool

PATIENCE_S = 20


def text(*ports: int) -> str:
    return "endpoints:\n" + "".join(f"- {{address: 10.0.0.1, port: {port}}}\n" for port in ports)


@dataclass
class Stage:
    pool: Pool
    discovery: FileDiscovery

    def ports(self) -> list[int]:
        return sorted(int(c.address.rpartition(":")[2]) for c in self.pool.candidates())

    def gauges(self) -> dict[str, float]:
        return {reading.name: sum(n for _, n in reading.samples) for reading in self.discovery.readings()}

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


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def lead_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def become_a_truncated_list(path: Path) -> None:
    whole = text(1, 2)
    path.write_text(whole[:-5])


def become_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00endpoints: []")


def become_the_wrong_type(path: Path) -> None:
    path.write_text("endpoints: {a: b}\n")


def become_null(path: Path) -> None:
    path.write_text("endpoints:\n")


@pytest.mark.parametrize(
    "worsen",
    [
        become_a_folder, become_a_pipe, lead_nowhere, become_a_truncated_list, become_bytes, become_the_wrong_type,
        become_null, Path.unlink,
    ],
)  # fmt: skip
def test_whatever_becomes_of_a_good_file_the_pool_stays_until_there_is_a_good_one_again(
    tmp_path: Path, worsen: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text(1, 2))

    async def scenario() -> None:
        async with following(path) as s:
            assert s.gauges()["tierwise_discovery_current"] == 1
            worsen(path)
            await s.until(lambda: s.discovery.errors > 0)
            assert (s.ports(), s.discovery.loaded) == ([1, 2], True)
            assert s.gauges()["tierwise_discovery_current"] == 0
            assert s.discovery.trouble is not None
            if path.is_dir():
                path.rmdir()
            rename_into_place(path, text(3))
            await s.until(lambda: s.ports() == [3])
            assert s.gauges()["tierwise_discovery_current"] == 1
            assert s.discovery.trouble is None

    asyncio.run(scenario())
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(set(errors)) == len(errors), "once for each change"
    assert all(str(path) in line for line in errors)


def test_a_file_that_is_missing_at_the_start_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints.yaml"

    async def scenario() -> None:
        async with following(path) as s:
            assert s.discovery.trouble == f"{path}: No such file or directory"

    asyncio.run(scenario())
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        f"{path}: No such file or directory; nobody is served until there is a list"
    ]


def test_the_data_folder_of_a_configmap_is_swapped_as_kubernetes_does_it_also_to_something_bad(tmp_path: Path) -> None:
    """The old folder is removed at each swap, as Kubernetes does."""
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "endpoints.yaml").symlink_to("..data/endpoints.yaml")

    def swap(version: str, content: str) -> None:
        before = (mount / "..data").resolve() if (mount / "..data").exists() else None
        (mount / version).mkdir()
        (mount / version / "endpoints.yaml").write_text(content)
        (mount / "..data_tmp").symlink_to(version)
        (mount / "..data_tmp").rename(mount / "..data")
        if before is not None:
            shutil.rmtree(before)

    async def scenario() -> None:
        swap("..v1", text(1))
        async with following(mount / "endpoints.yaml") as s:
            for number, (content, ports) in enumerate(
                [(text(1, 2), [1, 2]), ("endpoints: [", [1, 2]), (text(3), [3]), ("endpoints: []", []), (text(4), [4])]
            ):
                reloads, errors = s.discovery.reloads, s.discovery.errors
                swap(f"..v{number + 2}", content)
                await s.until(lambda r=reloads, e=errors: (s.discovery.reloads, s.discovery.errors) != (r, e))  # type: ignore[misc]
                assert s.ports() == ports

    asyncio.run(scenario())


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_full_pool_fits_into_a_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "endpoints"
    addresses = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(MAX_ENDPOINTS + 1)]

    def content(addresses: list[str]) -> str:
        if form == "json":
            return json.dumps({"endpoints": [{"address": a, "port": "8000", "labels": {"a": "b"}} for a in addresses]})
        return "endpoints:\n" + "".join(f"- address: {a}\n  port: 8000\n  labels: {{a: b}}\n" for a in addresses)

    async def scenario() -> None:
        path.write_text(content(addresses[:-1]))
        async with following(path) as s:
            assert len(s.pool) == MAX_ENDPOINTS
            path.write_text(content(addresses))
            await s.until(lambda: s.discovery.errors == 1)
            assert len(s.pool) == MAX_ENDPOINTS
            assert "a pool holds at most 10000; split the pool" in str(s.discovery.trouble)

    asyncio.run(scenario())


def test_of_many_entries_that_are_skipped_the_log_has_the_first_and_the_metrics_have_the_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text(1) + "- {address: 10.0.0.1}\n" * 50)

    async def scenario() -> None:
        async with following(path, watch=False) as s:
            assert s.ports() == [1]
            assert s.gauges()["tierwise_discovery_skipped_entries"] == 50

    asyncio.run(scenario())
    assert caplog.text.count("missing field port") == 20
    assert "skipped: 30 more" in caplog.text


def test_hosts_that_nobody_knows_yet_are_asked_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: [{address: one, port: 1}, {address: two, port: 2}]")
    known: dict[str, str] = {}

    async def resolve(names: Sequence[str]) -> list[str]:
        if names[0] not in known:
            raise ConfigError(f"{names[0]} is unknown")
        return [known[names[0]]]

    async def scenario() -> None:
        pool = Pool()
        discovery = FileDiscovery(pool, path, watch=True, look_every_s=0.05, ask_again_s=0.02, resolve=resolve)
        await discovery.start()
        s = Stage(pool, discovery)
        try:
            assert not discovery.loaded
            known["one:1"] = "10.0.0.1:1"
            await s.until(lambda: s.ports() == [1])
            known["two:2"] = "10.0.0.2:2"
            await s.until(lambda: s.ports() == [1, 2])
            known.clear()
            rename_into_place(path, path.read_text().replace("}]", "}, {address: three, port: 3}]"))
            await s.until(lambda: discovery.reloads == 1)
            assert s.ports() == [1, 2], "what was known stays"
        finally:
            await discovery.stop()

    asyncio.run(scenario())
    assert caplog.text.count("skipped: two:2 is unknown") == 1
