"""The average time of kvengine's loads from CPU memory since its start, as the initial value of a cost model.

Source: kvengine's ``connector/statistics.py``: ``loaded_tokens``, and the sum of ``job_seconds`` of loads, from their
order to the last worker's report. Loads that wait for each other include their waits, so the estimate is rather too
long than too short.
"""

from __future__ import annotations

import re

ENOUGH_TOKENS = 20_000
"""Below this number of loaded tokens, the average would be that of a few small loads."""
DIGITS = 2
"""With more digits, the value would change at every read."""
_TOKENS = re.compile(rb"^kvengine:loaded_tokens_total(?:\{[^\n]*\})?[ \t]+([0-9.eE+]+)", re.MULTILINE)
_SECONDS = re.compile(rb'^kvengine:job_seconds_sum\{[^\n]*direction="load"[^\n]*\}[ \t]+([0-9.eE+-]+)', re.MULTILINE)


def load_token_s(part: bytes) -> float | None:
    """Return the seconds per token, from kvengine's ``part`` of a page; None if too little was loaded.

    None, too, if the page does not have the two metrics.
    """
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
