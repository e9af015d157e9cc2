"""What plugins say of candidates to people, checked: it is somebody's code."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import msgspec

from scorers.base import Detail


def checked(details: Sequence[Detail], wanted: int) -> Sequence[Detail]:
    """``details`` without numbers that are none; empty where nothing is said.

    Raises: ValueError, TypeError for another number of them than ``wanted``, or for what is no ``Detail``.
    """
    if not details:
        return ()
    if len(details) != wanted:
        raise ValueError(f"{len(details)} details for {wanted} candidates")
    found = [msgspec.convert(msgspec.to_builtins(detail), Detail) for detail in details]
    return [Detail(one.text, {name: value for name, value in one.numbers.items() if isfinite(value)}) for one in found]
