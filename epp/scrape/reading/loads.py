"""How long kvengine's loads from CPU memory took, on average since its start: where a cost model begins.

Source: kvengine's ``connector/statistics.py``: ``loaded_tokens`` and the sum of ``job_seconds`` of loads, from their
order to the last worker's report. Loads that wait for each other count their waits: rather too long than too short.
"""

from __future__ import annotations

import re

ENOUGH_TOKENS = 20_000
"""Before so many were loaded, the average is that of a few small loads."""
DIGITS = 2
"""More would make it another number at every look."""
_TOKENS = re.compile(rb"^kvengine:loaded_tokens_total(?:\{[^\n]*\})?[ \t]+([0-9.eE+]+)", re.MULTILINE)
_SECONDS = re.compile(rb'^kvengine:job_seconds_sum\{[^\n]*direction="load"[^\n]*\}[ \t]+([0-9.eE+-]+)', re.MULTILINE)


def load_token_s(part: bytes) -> float | None:
    """Seconds for each token, from kvengine's ``part`` of a page; None where too little was loaded, or it is not
    said."""
    tokens, seconds = _sum(_TOKENS, part), _sum(_SECONDS, part)
    if tokens is None or seconds is None or tokens < ENOUGH_TOKENS or not 0.0 < seconds < 1e12:
        return None
    return float(f"{seconds / tokens:.{DIGITS}g}")


def _sum(pattern: re.Pattern[bytes], part: bytes) -> float | None:
    try:
        values = [float(text) for text in pattern.findall(part)]
    except ValueError:
        return None
    return sum(values) if values else None
