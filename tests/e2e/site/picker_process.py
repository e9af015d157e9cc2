"""The command's own picker without its Envoy, in a process of its own, so that it can be killed alone.

Run: ``python -m tests.e2e.site.picker_process '{"grpc_port": ..., "metrics_port": ..., ...}'``: flags of the command.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from epp.runtime.memory import collect_rarely
from epp.runtime.signals import until_signalled
from epp.server.command import run
from epp.server.settings import Transport
from epp.standalone.command import start_picker
from epp.standalone.settings import ResponseMode
from tests.e2e.site.options import options_of


def main() -> int:
    given = json.loads(sys.argv[1])
    options = options_of(
        **given
        | {
            "response_mode": ResponseMode(given["response_mode"]),
            "transport": Transport(given["transport"]),
            "config_file": Path(given["config_file"]) if given["config_file"] is not None else None,
        }
    )

    async def serve(stop: asyncio.Event) -> None:
        picker = await start_picker(options)
        collect_rarely()
        await stop.wait()
        await picker.stop(1.0)

    return run("picker", lambda: until_signalled(serve))


if __name__ == "__main__":
    sys.exit(main())
