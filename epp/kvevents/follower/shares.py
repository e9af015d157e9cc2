"""What a holder has of one run: its first contiguous blocks, and *loose* blocks behind a hole.

Loose blocks count when the hole before them closes.
"""

from __future__ import annotations

from epp.kvevents.follower.run import Run


def gain(run: Run, at: int, count: int, holder: int) -> bool:
    """Give ``holder`` the ``count`` blocks of ``run`` from ``at`` on; return whether its contiguous part has grown."""
    before = contiguous = (run.have or {}).get(holder, 0)
    if at > contiguous:
        _loosen(run, holder, range(at, at + count))
        return False
    contiguous = max(contiguous, at + count)
    loose = (run.loose or {}).get(holder)
    if loose:
        loose.difference_update(range(at, at + count))
        while contiguous in loose:
            loose.discard(contiguous)
            contiguous += 1
        if not loose:
            _no_loose(run, holder)
    if contiguous == before:
        return False
    if run.have is None:
        run.have = {}
    run.have[holder] = contiguous
    return True


def lose(run: Run, at: int, holder: int) -> bool:
    """Take block ``at`` of ``run`` from ``holder``; return whether its contiguous part has shrunk."""
    contiguous = (run.have or {}).get(holder, 0)
    if run.have is None or at >= contiguous:
        loose = (run.loose or {}).get(holder)
        if loose is not None:
            loose.discard(at)
            if not loose:
                _no_loose(run, holder)
        return False
    if at + 1 < contiguous:
        _loosen(run, holder, range(at + 1, contiguous))
    if at:
        run.have[holder] = at
    else:
        del run.have[holder]
    return True


def _loosen(run: Run, holder: int, positions: range) -> None:
    if run.loose is None:
        run.loose = {}
    run.loose.setdefault(holder, set()).update(positions)


def _no_loose(run: Run, holder: int) -> None:
    if run.loose is not None:
        del run.loose[holder]
        run.loose = run.loose or None
