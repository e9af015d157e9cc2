"""A plugin keeps working data in a request, and can reach only its own."""

from __future__ import annotations

from weakref import ref

from scorers.base import Request, Scratch


def request() -> Request:
    return Request("r", "m", "m")


def test_what_was_put_into_a_request_is_found_there_until_it_is_taken() -> None:
    matches = Scratch[list[int]]()
    asked = request()
    assert (matches.of(asked), matches.take(asked)) == (None, None)
    matches.put(asked, [1])
    assert matches.of(asked) == matches.of(asked) == [1]
    matches.put(asked, [])
    assert matches.of(asked) == []
    assert matches.take(asked) == []
    assert matches.of(asked) is None
    assert asked.scratch == {}


def test_neither_two_plugins_nor_two_requests_share_working_data() -> None:
    one, other = Scratch[int](), Scratch[int]()
    first, second = request(), request()
    one.put(first, 1)
    other.put(first, 2)
    one.put(second, 3)
    assert [one.of(first), other.of(first), one.of(second), other.of(second)] == [1, 2, 3, None]


def test_a_plugin_may_hold_a_weak_reference_to_a_request() -> None:
    """Plugins written before ``Scratch`` recognize a request in ``picked`` by one."""
    asked = request()
    assert ref(asked)() is asked
