"""Our log lines appear with vLLM's, and name the package."""

from __future__ import annotations

import logging
from io import StringIO

from kvengine.connector.logs import join_vllm


def test_every_line_of_ours_is_in_vllms_log_once_with_our_name_and_from_its_level_on() -> None:
    ours, theirs = logging.getLogger("kvengine"), logging.getLogger("vllm")
    assert theirs.handlers, "vLLM writes its own log"
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(theirs.handlers[0].formatter)
    join_vllm()
    join_vllm()
    theirs.addHandler(handler)
    try:
        handler.setLevel(logging.ERROR)
        logging.getLogger("kvengine.arena").warning("not so bad")
        handler.setLevel(logging.NOTSET)
        for name in ("kvengine.connector.worker", "kvengine.arena"):
            logging.getLogger(name).warning("%s has taken %d%%", name, 100)
        theirs.warning("something else")
    finally:
        theirs.removeHandler(handler)
    assert not ours.propagate
    lines = written.getvalue().splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == [
        "kvengine: kvengine.connector.worker has taken 100%",
        "kvengine: kvengine.arena has taken 100%",
        "something else",
    ]
    assert all("WARNING " in line for line in lines), "as vLLM writes them"
