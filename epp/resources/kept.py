"""The objects of one kind in both groups, and what became of each.

Both groups count, so that nothing changes for one pool when the definitions of the newer group are installed for
another. Of two objects with one name the newer group's is used. The Go picker ignores every object of the older group
from the moment at which the newer one is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import msgspec

from epp.errors import ConfigError
from epp.kube.objects_inference import GROUPS, InferenceObject
from epp.resources.precedence import Owner, Precedence
from epp.resources.verdict import Verdict, invalid, superseded
from epp.resources.written import PoolName, refers_to

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

OTHER_POOL = "OtherPool"
"""The state of an object that is of no concern to this picker."""


class ObjectName(NamedTuple):
    """The name of an object within its kind and namespace."""

    name: str
    group: int
    """The position of its group in ``GROUPS``."""


class Judged(NamedTuple):
    """An object of this pool, and what became of it."""

    name: ObjectName
    item: InferenceObject
    verdict: Verdict


class Applied(NamedTuple, Generic[K, V]):
    """What has changed since the last time."""

    values: Mapping[K, V | None]
    """The new value of each key; None for a key that no object has any more."""
    judged: Iterable[Judged]
    gone: Sequence[ObjectName]
    """Objects that are deleted, or name another pool now."""


@dataclass(slots=True)
class _Kept(Generic[K, V]):
    item: InferenceObject
    owner: Owner
    values: Mapping[K, V] | None
    problem: str = ""
    placed: bool = False
    """Whether its values are claims now."""


class KeptKind(Generic[K, V]):
    """The objects of one kind. Owner: the event loop.

    Invariant: after ``settle`` the values are those of the objects, whatever the order of the calls before.
    """

    def __init__(
        self,
        kind: str,
        read: Callable[[str, msgspec.Raw], Mapping[K, V]],
        judge: Callable[[Owner, Sequence[K], Sequence[tuple[K, Owner | None]]], Verdict],
        pool: PoolName,
    ) -> None:
        """``read`` returns what an object of a name and spec claims, or raises ConfigError; ``judge`` what became of it
        from its claims and those it lost."""
        self.kind = kind
        self.verdicts: dict[ObjectName, Verdict] = {}
        """What became of each object of this pool, as of the last ``settle``."""
        self._read, self._judge, self._pool = read, judge, pool
        self._items: dict[ObjectName, InferenceObject] = {}
        self._ours: dict[ObjectName, _Kept[K, V]] = {}
        self._precedence = Precedence[K, V]()
        self._look: set[ObjectName] = set()  # objects that are judged at the next ``settle``
        self._dropped: set[ObjectName] = set()

    def names(self, group: int) -> set[str]:
        """Return the names of all objects of one group, those of other pools too."""
        return {name.name for name in self._items if name.group == group}

    def states(self) -> Counter[tuple[str, str]]:
        """Count the objects by group and by the reason of their verdict, or ``OTHER_POOL``."""
        found: Counter[tuple[str, str]] = Counter()
        for name in self._items:
            verdict = self.verdicts.get(name)
            if name not in self._ours:
                found[GROUPS[name.group], OTHER_POOL] += 1
            elif verdict is not None:
                found[GROUPS[name.group], verdict.reason] += 1
        return found

    def configure(self, keys: Collection[K]) -> None:
        """Make ``keys`` those that the configuration claims."""
        self._precedence.configure(keys)

    def put(self, group: int, item: InferenceObject) -> None:
        """Add an object, or replace the one of its name."""
        name = ObjectName(item.metadata.name, group)
        before = self._items.get(name)
        item = self._items[name] = self._slim(item)
        if before is not None and _same(before, item):  # its status was written, or its labels
            if (kept := self._ours.get(name)) is not None:
                kept.item = item
                self._look.add(name)
            return
        self._place(name, item)

    def remove(self, group: int, name: str) -> None:
        """Remove an object, if it is there."""
        key = ObjectName(name, group)
        self._items.pop(key, None)
        self._drop(key)
        self._arrange(name)

    def settle(self) -> Applied[K, V]:
        """Return what has changed since the last call, with every verdict."""
        applied = self.apply()
        return applied._replace(judged=list(applied.judged))

    def prepare(self) -> Iterator[None]:
        """Settle who has each key, one in each step; nothing of it shows before ``apply``, which takes the rest."""
        return self._precedence.steps()

    def apply(self) -> Applied[K, V]:
        """Return what has changed since the last call; each step of ``judged`` judges one object.

        ``judged`` is read to its end before the next change. With thousands of claims, ``prepare`` comes before.
        """
        values, judged = self._precedence.settle()
        self._look.update(ObjectName(owner.name, owner.group) for owner in judged)
        look, self._look = self._look, set()
        gone = [name for name in self._dropped if name not in self._ours]
        self._dropped.clear()
        return Applied(values, self._judged(look), gone)

    def _judged(self, look: set[ObjectName]) -> Iterator[Judged]:
        for name in sorted(look):
            if (kept := self._ours.get(name)) is not None:
                self.verdicts[name] = verdict = self._verdict(name, kept)
                yield Judged(name, kept.item, verdict)

    def _slim(self, item: InferenceObject) -> InferenceObject:
        """Return what is kept of an object: of other pools' nothing but the metadata, and no annotations of any."""
        metadata = msgspec.structs.replace(item.metadata, labels=None, annotations=None)
        if not refers_to(item.spec, self._pool):
            return InferenceObject(metadata)
        return InferenceObject(metadata, item.spec.copy(), item.status)  # or else its whole page stays in memory

    def _place(self, name: ObjectName, item: InferenceObject) -> None:
        self._drop(name)
        if refers_to(item.spec, self._pool):
            owner = Owner(item.metadata.creation_timestamp, name.name, name.group)
            try:
                self._ours[name] = _Kept(item, owner, self._read(name.name, item.spec))
            except ConfigError as error:
                self._ours[name] = _Kept(item, owner, None, str(error))
        self._arrange(name.name)

    def _drop(self, name: ObjectName) -> None:
        kept = self._ours.pop(name, None)
        if kept is not None:
            self._precedence.remove(kept.owner)
            self.verdicts.pop(name, None)
            self._dropped.add(name)

    def _arrange(self, name: str) -> None:
        """Let the object of the newest group that has the name claim its values, and no other object of the name."""
        first = True
        for group in range(len(GROUPS)):
            key = ObjectName(name, group)
            kept = self._ours.get(key)
            if kept is None:
                continue
            self._look.add(key)
            if first and kept.values is not None and not kept.placed:
                self._precedence.put(kept.owner, kept.values)
                kept.placed = True
            elif not first and kept.placed:
                self._precedence.remove(kept.owner)
                kept.placed = False
            first = False

    def _verdict(self, name: ObjectName, kept: _Kept[K, V]) -> Verdict:
        for group in range(name.group):
            if ObjectName(name.name, group) in self._ours:
                return superseded(self.kind, GROUPS[group])
        if kept.values is None:
            return invalid(kept.problem)
        owner = kept.owner
        return self._judge(owner, list(self._precedence.claims(owner)), self._precedence.lost(owner))


def _same(before: InferenceObject, after: InferenceObject) -> bool:
    old, new = before.metadata, after.metadata
    return before.spec == after.spec and (old.uid, old.creation_timestamp) == (new.uid, new.creation_timestamp)
