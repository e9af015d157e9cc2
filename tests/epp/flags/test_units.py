from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.units import Quantity, parse_bytes, parse_duration, written_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50ms", 0.05), ("2s", 2), ("1m30s", 90), ("1h", 3600), ("1.5s", 1.5), (".5s", 0.5), ("0", 0), ("250us", 0.00025)],
)
def test_a_duration_is_read_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "1d", "5sx", "x5s", "1m 30s", "1e3s", "infs"])
def test_what_is_no_duration_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it as 50ms, 2s or 1m30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0), ("4194304", 4 << 20), ("10MiB", 10 << 20), ("25MB", 25 * 10**6), ("512Ki", 512 << 10),
        ("1G", 10**9), ("10Gi", 10 << 30), ("1k", 1000), ("1KB", 1000), ("1.5MiB", 3 << 19), ("7B", 7),
    ],
)  # fmt: skip
def test_a_quantity_is_read_as_in_go_and_kubernetes(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1 2", "1m", "1Mib", "1e6", "ten", "1iB"])
def test_what_is_no_quantity_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes; write it as 256GiB, 10MiB, 25MB or 4194304"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(10 << 20, "10MiB"), (8 * 10**9, "8GB"), (3 << 29, "1536MiB"), (8_000_000_001, "8000000001"), (0, "0")],
)
def test_an_amount_is_written_exactly_and_short(amount: int, text: str) -> None:
    assert written_bytes(amount) == text


@given(st.integers(0, 1 << 53))
def test_what_is_written_is_read_as_the_same(amount: int) -> None:
    assert parse_bytes(written_bytes(amount)) == amount


@pytest.mark.parametrize("value", ["1x", "", True, 1.5, None])
def test_a_count_that_is_none_is_not_said_to_be_bytes(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity; write it as 5000, 5k or 10Gi$"):
        Quantity.parse(value)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(minutes: int, seconds: int, ms: int) -> None:
    assert parse_duration(f"{minutes}m{seconds}s{ms}ms") == pytest.approx(minutes * 60 + seconds + ms / 1000)
