"""The folder of a killed router is removed at the next start; the folder of a running one stays."""

from __future__ import annotations

from pathlib import Path

from epp.standalone.leftovers import kept_from_tidying, remove_leftovers


def folder(parent: Path, name: str, *files: str) -> Path:
    made = parent / name
    made.mkdir()
    for file in files:
        (made / file).write_text("{}")
    return made


def test_a_folder_goes_when_nobody_holds_its_lock_and_stays_while_somebody_does(tmp_path: Path) -> None:
    dead = folder(tmp_path, "tierwise-dead", "envoy.json", "endpoints.json")
    living = folder(tmp_path, "tierwise-living", "envoy.json")
    with kept_from_tidying(living):
        assert remove_leftovers(tmp_path) == [dead]
        assert living.exists()
    assert remove_leftovers(tmp_path) == [living]
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_router_that_was_killed_while_it_started_goes_too(tmp_path: Path) -> None:
    starting = folder(tmp_path, "tierwise-starting")
    with kept_from_tidying(starting):
        assert remove_leftovers(tmp_path) == []
    assert remove_leftovers(tmp_path) == [starting]


def test_what_is_no_folder_of_a_router_stays(tmp_path: Path) -> None:
    elsewhere = folder(tmp_path, "elsewhere", "envoy.json")
    folder(tmp_path, "tierwise-new")
    folder(tmp_path, "tierwise-other", "thesis.tex")
    (tmp_path / "tierwise-link").symlink_to(elsewhere)
    (tmp_path / "tierwise-file").touch()
    assert remove_leftovers(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 5
    assert (elsewhere / "envoy.json").exists()
