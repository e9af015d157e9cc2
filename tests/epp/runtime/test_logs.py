"""The log has two formats, cannot be forged by clients, and is not filled by a fault that repeats."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from epp.runtime.logs import ANOTHER_EVERY_S, BURST, Console, Json, Repeats, set_up
from epp.runtime.options import LogFormat, LogOptions


def record(
    message: str, *args: object, level: int = logging.INFO, line: int = 1, **fields: object
) -> logging.LogRecord:
    made = logging.LogRecord("epp.place", level, "/place.py", line, message, args, None)
    if fields:
        made.fields = fields
    return made


@pytest.fixture
def loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in ("epp", "scorers", "tierwise")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def test_json_has_the_four_keys_first_and_the_fields_after_them() -> None:
    line = Json().format(record("went to %s", "10.0.0.7:8000", pick=7, cached={"gpu": 64}))
    said = json.loads(line)
    assert list(said) == ["ts", "level", "logger", "msg", "pick", "cached"]
    assert (said["level"], said["logger"], said["msg"]) == ("info", "epp.place", "went to 10.0.0.7:8000")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said["ts"])


def test_a_field_does_not_replace_one_of_the_four() -> None:
    assert json.loads(Json().format(record("true", msg="forged", level="forged")))["msg"] == "true"


def test_text_shows_fields_behind_the_message() -> None:
    line = Console().format(record("ended", pick=7, model="Qwen/Qwen3-32B", tokens={"gpu": 64}, odd='a "b"'))
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ", line)
    assert line.endswith('INFO    epp.place: ended pick=7 model=Qwen/Qwen3-32B tokens={"gpu":64} odd="a \\"b\\""')


HOSTILE = "m\n12:00:00.000 INFO    epp.server.command: all is well\r\x1b[2J\x85\u2028"


@pytest.mark.parametrize("where", ["message", "field"])
def test_what_a_client_sends_cannot_begin_a_line_or_move_the_cursor(where: str) -> None:
    made = record("model %s", HOSTILE) if where == "message" else record("model", model=HOSTILE)
    for formatter in (Console(), Json()):
        lines = formatter.format(made).splitlines()
        assert all(line.startswith("    ") for line in lines[1:])
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", "".join(lines))


def test_a_traceback_cannot_be_forged_either() -> None:
    try:
        int(HOSTILE)
    except ValueError:
        made = logging.LogRecord("epp", logging.ERROR, "/p.py", 1, "failed", (), sys.exc_info())
    lines = Console().format(made).splitlines()
    assert any("ValueError" in line for line in lines)
    assert all(line.startswith(("Traceback", "    ")) for line in lines[1:])


def test_a_message_is_bounded() -> None:
    assert len(Json().format(record("%s", "x" * 10_000_000))) < 20_000


def test_a_fault_that_repeats_writes_a_burst_then_a_line_now_and_then_and_says_what_it_left_out() -> None:
    now = 100.0
    repeats = Repeats(lambda: now)
    assert sum(repeats.filter(record("again", level=logging.ERROR)) for _ in range(1000)) == BURST
    assert repeats.left_out == 1000 - BURST
    now += ANOTHER_EVERY_S
    later = record("again %d", 7, level=logging.ERROR)
    assert repeats.filter(later)
    assert later.getMessage() == f"again 7 ({1000 - BURST} lines like this were left out)"
    assert not repeats.filter(record("again", level=logging.ERROR))


def test_another_place_in_the_code_is_not_held_back() -> None:
    repeats = Repeats(lambda: 0.0)
    for _ in range(1000):
        repeats.filter(record("again"))
    assert repeats.filter(record("other", line=2))


def test_lines_for_people_who_debug_are_never_left_out() -> None:
    repeats = Repeats(lambda: 0.0)
    assert all(repeats.filter(record("picked", level=logging.DEBUG)) for _ in range(1000))


def test_there_is_a_bound_on_places() -> None:
    repeats = Repeats(lambda: 0.0)
    for line in range(5000):
        repeats.filter(record("x", line=line))
    assert len(repeats._places) <= 1000


@pytest.mark.usefixtures("loggers_as_before")
@pytest.mark.parametrize(("verbosity", "ours"), [(0, logging.WARNING), (2, logging.INFO), (4, logging.DEBUG)])
def test_libraries_are_heard_from_warnings_up_whatever_the_verbosity(verbosity: int, ours: int) -> None:
    set_up(LogOptions(verbosity=verbosity, format=LogFormat.JSON))
    assert logging.getLogger("epp.anything").getEffectiveLevel() == ours
    for library in ("hpack.hpack", "aiohttp.access", "asyncio", "grpc._server", "anything"):
        assert logging.getLogger(library).getEffectiveLevel() == logging.WARNING
