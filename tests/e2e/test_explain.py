"""The command ``tierwise explain`` predicts the endpoint of a request, and the router then picks it."""

from __future__ import annotations

import json
import re
import signal

import openai
import pytest

from epp.commandline import cli
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK
from tests.e2e.test_command import command

pytestmark = pytest.mark.e2e


def test_what_is_foretold_is_what_happens(engines: list[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [f"{number} sphinx of black quartz, judge my vow " * 40 for number in range(6)]
    with command(*(f"--endpoint={engine.address}" for engine in engines), "--debug-port=0") as router:
        found = re.search(r"tierwise explain --url (\S+)", router.said)
        assert found, router.said
        with openai.OpenAI(base_url=f"http://{LOOPBACK}:{router.port}/v1", api_key="none", max_retries=0) as client:

            def ended() -> bool:
                assert cli.main(["explain", f"--url={found[1]}", "--json"]) == 0
                return json.loads(capsys.readouterr().out)["in_flight"] == 0

            for prompt in prompts * 2:
                router.until(ended)
                words = ["explain", f"--url={found[1]}", "--model=m", f"--prompt={prompt}", "--json"]
                assert cli.main(words) == 0
                foretold = json.loads(capsys.readouterr().out)
                assert client.completions.create(model="m", prompt=prompt).choices[0].text == foretold["pick"]
        assert router.end(signal.SIGTERM) == 0
