"""The snapshot's file is whole, private and the picker's own, or it is not used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epp.pool.index_file import MAX_AGE_S, NotOurs, SavedIndex, SnapshotError, impossible, read, tidy, unfinished, write
from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex
from scorers.index.snapshot import Snapshot
from scorers.index.snapshot_writer import taken

NOW = 1_800_000_000.0
A = "10.0.0.1:8000"


def kept(written_s: float = NOW) -> SavedIndex:
    index = PrefixIndex(1, 1, bytes(32))
    index.set_capacity(Slot(0), 0, 100)
    index.record(index.match(Prompt(b"", b"abcd" * 20)), Slot(0))
    return SavedIndex(written_s, ("gpu",), {A: "engine"}, taken(index, {A: Slot(0)}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_what_was_written_is_read(path: Path) -> None:
    size = write(path, kept())
    assert path.stat().st_size == size
    assert read(path, NOW + 1) == kept()


def test_only_the_owner_can_read_it_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        path.touch(0o666)
        write(path, kept())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_no_file_and_an_empty_one_are_nothing_to_read(path: Path) -> None:
    assert read(path, NOW) is None
    path.touch()
    assert read(path, NOW) is None


def test_a_file_that_the_picker_did_not_write_is_neither_read_nor_overwritten(path: Path) -> None:
    path.write_text("apiVersion: llm-d.ai/v1alpha1\n")
    with pytest.raises(NotOurs, match="left alone"):
        read(path, NOW)
    with pytest.raises(NotOurs):
        write(path, kept())
    assert path.read_text().startswith("apiVersion")
    assert list(path.parent.iterdir()) == [path]


def test_what_is_no_file_is_not_used(path: Path) -> None:
    path.mkdir()
    with pytest.raises(NotOurs):
        read(path, NOW)
    with pytest.raises(NotOurs):
        write(path, kept())


def test_a_link_is_not_followed(path: Path) -> None:
    write(path.with_name("other"), kept())
    path.symlink_to(path.with_name("other"))
    with pytest.raises(NotOurs, match="symbolic"):
        read(path, NOW)


def other_version(data: bytes) -> bytes:
    return data[:16] + b"\x63" + data[17:]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other_version, "version 99"),
        (lambda data: data[:-1], "checksum"),
        (lambda data: data + b"\0", "checksum"),
        (lambda data: data[:20], "checksum"),
    ],
)
def test_what_is_damaged_is_not_used_and_may_be_replaced(
    path: Path, change: Callable[[bytes], bytes], why: str
) -> None:
    write(path, kept())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SnapshotError, match=why):
        read(path, NOW)
    write(path, kept())
    assert read(path, NOW) is not None


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_noticed(path: Path, at: int, bit: int) -> None:
    write(path, kept())
    whole = path.read_bytes()
    at %= len(whole)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    with pytest.raises(SnapshotError):
        read(path, NOW)
    path.write_bytes(whole)


@pytest.mark.parametrize("age_s", [MAX_AGE_S + 1, -61])
def test_an_old_one_and_one_of_the_future_are_not_believed(path: Path, age_s: float) -> None:
    write(path, kept(NOW - age_s))
    with pytest.raises(SnapshotError, match="s old"):
        read(path, NOW)


def test_one_that_makes_no_sense_is_not_used(path: Path) -> None:
    bent = kept()
    broken = Snapshot(bytes(32), 1, 1, [0], [b"12345678"], [], {})
    write(path, SavedIndex(NOW, bent.tiers, bent.engines, broken))
    with pytest.raises(SnapshotError, match="comes before what it follows"):
        read(path, NOW)


def test_one_that_everybody_may_read_is_not_used(path: Path) -> None:
    write(path, kept())
    path.chmod(0o604)
    with pytest.raises(SnapshotError, match="604"):
        read(path, NOW)


def test_one_that_is_too_large_is_not_written(path: Path) -> None:
    with pytest.raises(SnapshotError, match="64 are the limit"):
        write(path, kept(), most_bytes=64)
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot be written: No such file"):
        write(tmp_path / "missing" / "index", kept())


def test_the_temporary_file_of_a_crash_is_removed_once_it_cannot_be_in_use(path: Path) -> None:
    old, new, other = [path.with_name(f".index.{name}") for name in ("node.7.unfinished", "node.8.unfinished", "7")]
    for each in (old, new, other):
        each.write_bytes(b"half")
    os.utime(old, (NOW - 7200, NOW - 7200))
    os.utime(new, (NOW - 10, NOW - 10))
    os.utime(other, (NOW - 7200, NOW - 7200))
    tidy(path, NOW)
    assert set(path.parent.iterdir()) == {new, other}
    tidy(path.parent / "missing" / "index", NOW)


def test_pickers_in_several_containers_do_not_write_one_file(path: Path) -> None:
    assert unfinished(path, "a", 1) != unfinished(path, "b", 1)
    write(path, kept())
    beside = unfinished(path, os.uname().nodename, os.getpid())
    beside.write_bytes(b"half")
    write(path, kept())
    assert list(path.parent.iterdir()) == [path]


def test_a_place_where_no_file_can_be_is_called_so_before_anything_is_written(path: Path) -> None:
    assert impossible(path) is None
    assert (
        impossible(path.parent / "no" / "x")
        == f"there is no folder {path.parent / 'no'}; make it, or name another file"
    )
    assert impossible(path.parent) == "is a folder; name a file in it"
    path.touch()
    assert impossible(path) is None
    assert impossible(path / "x") == f"{path} is no folder; name another file"


def test_a_folder_that_cannot_be_written_to_is_no_place_for_it() -> None:
    assert impossible(Path("/proc/index")) == (
        "no file can be made in /proc: No such file or directory; name a file in another folder"
    )


def test_what_the_system_refuses_is_said_in_words_and_leaves_nothing_open(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(NotOurs, match="is a symbolic link, and is left alone; name the file itself"):
        read(path, NOW)
    with pytest.raises(NotOurs, match="is no file"):
        read(path.parent, NOW)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
