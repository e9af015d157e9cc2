import asyncio
import os
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from epp.errors import ConfigError
from epp.lab.engine.cli import bind, choose, describe, run_sim
from epp.lab.engine.options import SimOptions
from epp.lab.engine.preset import DEMO, PRESETS

ROOT = Path(__file__).parents[4]


def test_ports_are_consecutive() -> None:
    (first,) = bind("127.0.0.1", 0, 1)
    port = first.getsockname()[1]
    first.close()
    sockets = bind("127.0.0.1", port, 1)
    assert sockets[0].getsockname()[1] == port
    for sock in sockets:
        sock.close()


def test_a_taken_port_is_named_and_the_others_are_given_back() -> None:
    (taken,) = bind("127.0.0.1", 0, 1)
    port = taken.getsockname()[1]
    with taken, pytest.raises(ConfigError, match=rf"127.0.0.1:{port}: .* pass --port with another port"):
        bind("127.0.0.1", port, 1)


def test_an_unknown_preset_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="--preset=gpt-7: there is no such preset; there are ") as refusal:
        run_sim(SimOptions(preset="gpt-7", port=0))
    assert all(name in str(refusal.value) for name in PRESETS)


def test_a_name_for_two_models_is_refused() -> None:
    options = SimOptions(served_model_names=("a", "b"), adapters=(("a", "/adapters/a"),), port=0)
    with pytest.raises(ConfigError, match="the name 'a' is given to two models"):
        run_sim(options)


def test_the_default_is_the_demos_and_says_what_is_scaled() -> None:
    assert choose(None) is DEMO
    assert "simulated" in describe(DEMO)
    assert "one token stands for ten" in describe(DEMO)


def test_the_command_serves_every_port_and_ends_when_asked() -> None:
    async def scenario() -> None:
        code = "import sys; from epp.commandline.cli import main; sys.exit(main(sys.argv[1:]))"
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", code, "sim", "--endpoints=3", "--port=0"],
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        urls: list[str] = []
        async with asyncio.timeout(30):
            while len(urls) < 3:
                urls += re.findall(r"http://\S+", (await process.stdout.readline()).decode())
            for url in urls:
                assert await asyncio.to_thread(fetch, f"{url}/health") == 200
            process.send_signal(signal.SIGTERM)
            await process.stdout.read()
            assert await process.wait() == 0

    asyncio.run(scenario())


def fetch(url: str) -> int:
    with urllib.request.urlopen(url) as response:
        return int(response.status)
