"""The command ``tierwise doctor``: reads an installation, and reports what is wrong with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from epp.doctor.finding import COULD_NOT_LOOK, Finding, unread_finding
from epp.doctor.options import DoctorOptions
from epp.doctor.reading import read
from epp.doctor.report import as_json, as_text
from epp.doctor.rules import examine
from epp.doctor.shown import fit, is_name
from epp.doctor.snapshot import Snapshot
from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.errors import KubeError
from epp.kube.kubeconfig.identity import open_access
from epp.printing.prose import console_for, show

NOTHING, FOUND, INCOMPLETE = 0, 1, 2
"""The exit statuses: nothing is wrong, something is, or it could not be looked at."""
ANSWER_S = 5.0
"""The longest that the API server may take for one answer, or for one page of a list."""
WHOLE_S = 30.0
"""The longest that reading everything may take. A guess: 10,000 pods take a few seconds."""


def run_doctor(options: DoctorOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError, with one sentence, if nothing can be read."""
    seen = asyncio.run(_read_all(options))
    findings = [*examine(seen), *fit(unread_finding(one, seen.namespace) for one in seen.unread)]
    where = f"{seen.namespace}/{seen.name}" if seen.name else seen.namespace
    if options.json:
        print(as_json(where, findings, seen.counts))
    else:
        show(console_for(), as_text(where, findings, seen.counts))
    return status(findings)


def status(findings: Sequence[Finding]) -> int:
    """Return the exit status for findings: something wrong outweighs what could not be looked at."""
    if any(finding.cause != COULD_NOT_LOOK for finding in findings):
        return FOUND
    return INCOMPLETE if findings else NOTHING


async def _read_all(options: DoctorOptions) -> Snapshot:
    try:
        async with asyncio.timeout(WHOLE_S):
            access = await open_access(options.kubeconfig, os.environ)
            async with Client(access, answer_s=ANSWER_S) as client:
                namespace = options.namespace or access.namespace or "default"
                if not is_name(namespace):
                    raise ConfigError(f"{namespace!r} is no name of a namespace; see kubectl get namespaces")
                return await read(client, namespace, options.pool)
    except TimeoutError as error:
        raise ConfigError(
            f"the API server did not answer everything within {WHOLE_S:g} s; ask about one pool, or look at its load"
        ) from error
    except KubeError as error:
        raise ConfigError(str(error)) from error
