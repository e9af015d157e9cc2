"""How long to wait after a failed request to the API server, before the next one."""

from __future__ import annotations

from collections.abc import Callable

from epp.errors import ConfigError
from epp.kube.errors import KubeError, Refused

FIRST_WAIT_S = 0.25
"""The longest wait after the first failure; each further one doubles it. A guess."""
LONGEST_WAIT_S = 30.0
"""The longest wait after an answer: what an operator puts right is used within that time. A guess."""
LONGEST_UNANSWERED_S = 1.5
"""The longest wait while nothing answers: a connection that is refused costs the API server nothing, and a picker has
to learn at once what happened during the outage. A guess."""
_MOST_DOUBLINGS = 20


class Backoff:
    """The waits of one follower, each at another moment than those of other pickers. Owner: the event loop."""

    def __init__(self, random: Callable[[], float]) -> None:
        """``random`` gives numbers in [0, 1)."""
        self.failures = 0
        """How many requests failed in a row, of those that were answered, or of those that were not."""
        self._random, self._answered = random, False

    def reset(self) -> None:
        """Begin again with short waits, since the outage is over."""
        self.failures = 0

    def wait_s(self, error: KubeError | ConfigError) -> float:
        """Count a failure, and return how long to wait: at least as long as the answer requests, up to a limit.

        The count begins again when answers replace silence: an API server that starts refuses its first requests.
        """
        answered = isinstance(error, Refused)
        if answered != self._answered:
            self._answered, self.failures = answered, 0
        most = LONGEST_WAIT_S if answered or isinstance(error, ConfigError) else LONGEST_UNANSWERED_S
        longest = min(most, FIRST_WAIT_S * 2.0**self.failures)
        self.failures = min(self.failures + 1, _MOST_DOUBLINGS)
        asked = error.retry_after_s if isinstance(error, KubeError) else None
        return max(longest * (0.5 + self._random() / 2), min(asked or 0.0, LONGEST_WAIT_S))
