"""The command ``tierwise explain``: queries a running picker and prints the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from rich.console import RenderableType

from epp.errors import ConfigError
from epp.explain import table
from epp.explain.explanation import AnsweredBy, Explanation
from epp.explain.options import ANY_SERVED, ExplainOptions
from epp.explain.pool_state import Doubted, PoolState
from epp.printing.prose import Prose, console_for, show

T = TypeVar("T")

REFUSED = 1
"""The exit status if the picker would refuse the request."""
ANSWERS_WITHIN_S = 30.0


def run_explain(options: ExplainOptions) -> int:
    """Run the command and return its exit status."""
    body = request_body(options)
    if body is None:
        answer = ask(options, "GET", "/debug/endpoints")
        if options.json:
            print(answer.decode())
        else:
            state = read(answer, PoolState[Doubted])
            answer_with(options, state.answered_by, table.of_pool(state))
        return 0
    query = {"path": options.path or path_of(body)} | ({} if options.subset is None else {"subset": options.subset})
    if options.prompt is not None and options.model is None:
        query["model"] = ANY_SERVED
    answer = ask(options, "POST", f"/debug/explain?{urlencode(query)}", body)
    explanation = read(answer, Explanation)
    if options.json:
        print(answer.decode())
    else:
        answer_with(options, explanation.answered_by, table.of_explanation(explanation))
    return 0 if explanation.refusal is None else REFUSED


def answer_with(options: ExplainOptions, by: AnsweredBy | None, parts: Iterable[RenderableType]) -> None:
    """Print which picker has answered, since a machine may run several, and then ``parts``."""
    who = f"pool {by.pool}, pid {by.pid}, at " if by is not None else ""
    show(console_for(), (Prose(f"{who}{options.url}"), *parts))


def request_body(options: ExplainOptions) -> bytes | None:
    """Return the body to explain; None to show the endpoints. Raises: ConfigError for a file that cannot be read."""
    if options.prompt is not None:
        named = {} if options.model is None else {"model": options.model}
        return json.dumps({**named, "prompt": options.prompt}).encode()
    if options.body is None:
        return None
    if options.body == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(options.body).read_bytes()
    except OSError as error:
        raise ConfigError(f"--body={options.body}: {error.strerror or error}") from error


def path_of(body: bytes) -> str:
    """Return the path that such a body is sent to."""
    try:
        keys = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "/v1/completions"
    return "/v1/chat/completions" if "messages" in keys else "/v1/completions"


def ask(options: ExplainOptions, method: str, target: str, body: bytes | None = None) -> bytes:
    """Send the query and return the answer. Raises: ConfigError with one sentence if there is none."""
    url = urlsplit(options.url)
    try:
        port = url.port or 80
    except ValueError as error:
        raise ConfigError(f"--url={options.url}: {error}") from error
    if url.scheme != "http" or not url.hostname:
        raise ConfigError(f"--url={options.url}: must be http://ADDRESS:PORT")
    connection = HTTPConnection(url.hostname, port, timeout=ANSWERS_WITHIN_S)
    try:
        connection.request(method, target, body, dict(options.headers))
        response = connection.getresponse()
        answer = response.read()
    except (OSError, HTTPException) as error:
        raise ConfigError(
            f"no picker answers at {options.url} ({error}); its start log names the debug port, and it must have been "
            "started without --debug=false"
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        said = answer[:200].decode(errors="replace").strip()
        raise ConfigError(f"{options.url} answers {response.status}: {said}; is it the debug port of a picker?")
    return answer


def read(answer: bytes, kind: type[T]) -> T:
    """Decode ``answer`` as ``kind``. Raises: ConfigError if it does not come from a picker's debug port."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the answer is not one of a picker's debug port: {error}") from error
