"""Digests cannot be predicted without the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorers.index.identity import DIGEST_BYTES, PrefixHasher, digests

SECRET = bytes(range(32))


def digest(hasher: PrefixHasher, identity: bytes, data: bytes) -> bytes:
    state = hasher.begin(identity)
    state.update(data)
    return state.digest()


@given(data=st.binary(max_size=300), step=st.integers(1, 40), data_again=st.binary(max_size=10))
def test_one_call_for_many_blocks_gives_the_digest_of_the_last(data: bytes, step: int, data_again: bytes) -> None:
    hasher = PrefixHasher()
    end = len(data) // step * step
    each = digests(hasher.begin(b"m"), memoryview(data), 0, end, step)
    assert len(each) == end // step * DIGEST_BYTES
    for n in range(end // step):
        assert each[n * DIGEST_BYTES : (n + 1) * DIGEST_BYTES] == digest(hasher, b"m", data[: (n + 1) * step])


@given(st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), unique=True, min_size=2, max_size=12))
def test_no_two_of_identity_and_data_share_a_digest(pairs: list[tuple[bytes, bytes]]) -> None:
    """Not even where both joined are the same bytes."""
    hasher = PrefixHasher()
    assert len({digest(hasher, identity, data) for identity, data in pairs}) == len(pairs)


def test_another_process_hashes_otherwise() -> None:
    assert digest(PrefixHasher(), b"m", b"x") != digest(PrefixHasher(), b"m", b"x")
    assert digest(PrefixHasher(SECRET), b"m", b"x") == digest(PrefixHasher(SECRET), b"m", b"x")


def test_each_user_of_a_state_has_a_copy_of_its_own() -> None:
    hasher = PrefixHasher()
    untouched = hasher.begin(b"m").digest()
    hasher.begin(b"m").update(b"x")
    assert hasher.begin(b"m").digest() == untouched


def test_an_identity_has_the_same_digests_after_thousands_of_others() -> None:
    hasher = PrefixHasher(SECRET)
    before = digest(hasher, b"m", b"x")
    for n in range(3000):
        hasher.begin(b"salt %d" % n)
    assert digest(hasher, b"m", b"x") == before
    assert digest(hasher, b"m" * 10_000, b"x") == digest(PrefixHasher(SECRET), b"m" * 10_000, b"x")


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="the secret has 5 bytes; it must have 32"):
        PrefixHasher(b"short")
