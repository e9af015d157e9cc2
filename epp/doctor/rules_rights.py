"""Rules about what the API server allows a picker's service account to do."""

from __future__ import annotations

from collections.abc import Iterator

from epp.doctor.finding import Finding
from epp.doctor.snapshot import Lack, Snapshot
from epp.kube.rights import manifest

_CAUSES = {"pods": "picker-may-not-list-pods", "metrics-auth": "metrics-not-authorised"}
_ACCOUNT = "system:serviceaccount:"


def rights(seen: Snapshot) -> Iterator[Finding]:
    """Find features of pickers whose rights are missing, each once for an account."""
    for lack in seen.lacks:
        yield Finding(
            _CAUSES.get(lack.feature, "picker-lacks-rights"), f"ServiceAccount {_short(lack)}",
            f"may not {', '.join(map(str, lack.rights))}, so that {lack.without}.",
            f"kubectl apply -f - <<'END'\n{manifest(lack.rights, lack.account)}\nEND",
        )  # fmt: skip


def _short(lack: Lack) -> str:
    return lack.account.removeprefix(_ACCOUNT).replace(":", "/")
