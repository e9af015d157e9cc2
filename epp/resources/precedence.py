"""Which of several objects counts where they claim the same: the oldest, then the first by name.

An objective claims its name, a rewrite each model that it matches. What the configuration claims comes before every
object. Source: "Precedence and Conflict Resolution" of InferenceModelRewrite, which leaves equal ages open.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Owner(NamedTuple):
    """An object, in the order of precedence: the one that compares as less comes first."""

    created: str
    """When the object was made, as the API server writes it."""
    name: str
    group: int
    """The position of its group in ``GROUPS``."""


class Settled(NamedTuple, Generic[K, V]):
    """What has changed since the last time."""

    values: Mapping[K, V | None]
    """The value of each key that has another one now; None for a key that no object claims any more."""
    judged: Collection[Owner]
    """The objects whose claims may have another outcome now."""


class Precedence(Generic[K, V]):
    """The claims of all objects, and which object has each key.

    ``put`` and ``remove`` cost O(claims of the object), and ``settle`` O(claims on the keys that changed), less those
    that ``steps`` has settled before. Invariant: what ``settle`` returns is the same with and without ``steps``.
    """

    def __init__(self) -> None:
        self._claims: dict[K, dict[Owner, V]] = {}
        self._owned: dict[Owner, Collection[K]] = {}
        self._used: dict[K, tuple[Owner, V]] = {}
        self._configured: frozenset[K] = frozenset()
        self._dirty: set[K] = set()
        self._values: dict[K, V | None] = {}  # what has changed, as far as it is settled
        self._judged: set[Owner] = set()

    def configure(self, keys: Collection[K]) -> None:
        """Make ``keys`` those that the configuration claims."""
        after = frozenset(keys)
        for key in self._configured ^ after:
            self._judged.update(self._claims.get(key, ()))
        self._configured = after

    def put(self, owner: Owner, values: Mapping[K, V]) -> None:
        """Make ``values`` the claims of ``owner``, in place of those it had."""
        self.remove(owner)
        for key, value in values.items():
            self._claims.setdefault(key, {})[owner] = value
        self._owned[owner] = tuple(values)
        self._dirty.update(values)
        self._judged.add(owner)

    def remove(self, owner: Owner) -> None:
        """Drop the claims of ``owner``, if it has any."""
        for key in self._owned.pop(owner, ()):
            claims = self._claims[key]
            del claims[owner]
            if not claims:
                del self._claims[key]
            self._dirty.add(key)
        self._judged.discard(owner)

    def steps(self) -> Iterator[None]:
        """Settle what has changed, one key in each step, also what changes meanwhile.

        Steps that are left out are those of ``settle``.
        """
        while self._dirty:
            self._settle_one(self._dirty.pop())
            yield

    def settle(self) -> Settled[K, V]:
        """Return what has changed since the last call."""
        for _ in self.steps():
            pass
        values, self._values = self._values, {}
        judged, self._judged = self._judged, set()
        return Settled(values, judged)

    def _settle_one(self, key: K) -> None:
        before, claims = self._used.get(key), self._claims.get(key)
        if claims is None:
            if before is not None:
                self._values[key] = None
                del self._used[key]
            return
        first = min(claims)
        now = first, claims[first]
        if now == before:
            return
        self._used[key], self._values[key] = now, now[1]
        if before is None or before[0] != first:
            self._judged.update(claims)

    def claims(self, owner: Owner) -> Collection[K]:
        """Return what ``owner`` claims."""
        return self._owned.get(owner, ())

    def lost(self, owner: Owner) -> list[tuple[K, Owner | None]]:
        """Return the claims of ``owner`` that another has: an object, or the configuration, which is None."""
        found: list[tuple[K, Owner | None]] = []
        for key in self._owned.get(owner, ()):
            if key in self._configured:
                found.append((key, None))
            elif (first := self._used[key][0]) != owner:
                found.append((key, first))
        return found
