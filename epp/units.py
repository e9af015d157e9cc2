"""Durations and byte quantities as they are written in flags and configuration files."""

from __future__ import annotations

import re

_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")

_FACTOR = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGTP]?i?)(B?)")


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``: ``50ms``, ``1m30s``, ``2s``, ``0``.

    Raises: ValueError, with the accepted forms, for anything else; negative durations included.
    """
    if text == "0":
        return 0.0
    total, end = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != end:
            break
        total += float(part[1]) * _UNIT_S[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(f"{text!r} is not a duration; write it as 50ms, 2s or 1m30s")
    return round(total, 9)


def parse_bytes(text: str) -> int:
    """Return the bytes in ``text``: ``10MiB``, ``25MB``, ``4194304``, ``512Ki``.

    Raises: ValueError, with the accepted forms, for anything else.
    """
    amount = _amount(text)
    if amount is None:
        raise ValueError(f"{text!r} is not a number of bytes; write it as 256GiB, 10MiB, 25MB or 4194304")
    return amount


def written_bytes(amount: int) -> str:
    """Return ``amount`` as ``parse_bytes`` reads it, exact, in the unit that makes it shortest."""
    if not amount:
        return "0"
    forms = [f"{amount // factor}{unit and f'{unit}B'}" for unit, factor in _FACTOR.items() if not amount % factor]
    return min(forms, key=len)


def _amount(text: str) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    prefix = match[2] if match else "?"
    factor = _FACTOR.get("k" if prefix == "K" else prefix)
    return None if match is None or factor is None else round(float(match[1]) * factor)


class Duration(float):
    """A number of seconds, written in a configuration file as ``50ms`` or ``1m30s``."""

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Return the value of the written form. Raises: ValueError."""
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a duration; write it as 50ms, 2s or 1m30s")  # noqa: TRY004 - msgspec adds the path to it
        return cls(parse_duration(value))


class Quantity(int):
    """A count or a number of bytes, written in a configuration file as ``1G``, ``10Gi``, ``5k`` or ``5000``."""

    @classmethod
    def parse(cls, value: object) -> Quantity:
        """Return the value of the written form. Raises: ValueError."""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"{value!r} is not a quantity; write it as 5000, 5k or 10Gi")  # noqa: TRY004
        amount = _amount(str(value))
        if amount is None:
            raise ValueError(f"{value!r} is not a quantity; write it as 5000, 5k or 10Gi")
        return cls(amount)
