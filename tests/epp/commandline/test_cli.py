"""First steps at the command line: help, typing errors, ports that are taken, output whose reader has left."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from epp.commandline import cli
from epp.commandline.programs import PROGRAMS

ROOT = Path(__file__).parents[3]
NAMES = [program.name for program in PROGRAMS]
Refused = Callable[..., str]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Return a function that runs a command line that must be refused, and returns the line that it prints."""

    def command(*words: str) -> str:
        assert cli.main(words) == cli.USAGE_ERROR
        printed = capfd.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1, printed.err
        return printed.err.strip()

    return command


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 0
    return capsys.readouterr().out


def test_all_ports_of_a_second_router_are_named_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        port, metrics = first.getsockname()[1], second.getsockname()[1]
        words = ["standalone", "--host=127.0.0.1", "--endpoint=127.0.0.1:9", "--admin-port=0"]
        done = subprocess.run(
            [sys.executable, "-m", "epp.commandline.cli", *words, f"--port={port}", f"--metrics-port={metrics}"],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"tierwise standalone: ports {port} (--port) and {metrics} (--metrics-port) are in use; "
        "stop what listens there or pass these flags with other ports"
    )


@pytest.mark.parametrize("words", [["--help"], ["help"]])
def test_help_on_all_commands_imports_the_flags_of_none(words: list[str]) -> None:
    code = f"import sys\nfrom epp.commandline.entry import main\nmain({words})\nprint(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "epp.commandline.programs" in out
    assert ".flags'" not in out.replace("'epp.flags'", "")
    assert "importlib.metadata" not in out.replace("__editable__", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_flags_of_a_command_import_nothing_that_its_program_needs(name: str) -> None:
    code = (
        f"import sys\nfrom epp.commandline.programs import PROGRAMS\n"
        f"[list(each.flags) for each in PROGRAMS if each.name == {name!r}]\nprint(sorted(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    for heavy in ("asyncio", "msgspec", "yaml", "watchfiles", "scorers", "ssl"):
        assert f"'{heavy}'" not in out


@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_fits_into_80_columns(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = printed(capsys, *([name] if name else []), "--help")
    assert not [line for line in text.splitlines() if len(line) > 80]


def test_an_example_that_is_wrapped_is_still_a_line_for_the_shell() -> None:
    line = "tierwise explain --model Qwen/Qwen3-32B --prompt 'Once upon a time' --header a:b"
    for width in range(20, 100):
        wrapped = cli.example(line, width)
        assert shlex.split(wrapped.replace("\\\n", " ")) == shlex.split(line)
        assert width < 40 or max(map(len, wrapped.split("\n"))) <= width


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command_is_what_its_flag_prints(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert printed(capsys, "help", name) == printed(capsys, name, "--help") != ""


def test_help_alone_is_what_its_flag_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "help") == printed(capsys, "help", "help") == printed(capsys, "--help")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["help", "nope"], "tierwise: there is no command 'nope'; there are serve, "),
        (["sim", "extra"], "tierwise sim: 'extra' is no flag: it takes flags only; see tierwise sim --help"),
        (["check", "picker.yaml"],
         "tierwise check: 'picker.yaml' is no flag: it takes flags only, such as --config-file FILE; see "),
        (["explain", "Once"], "tierwise explain: 'Once' is no flag: it takes flags only, such as --prompt TEXT; see "),
        (["size", "qwen3-32b"],
         "tierwise size: 'qwen3-32b' is no flag: it takes flags only, such as --model NAME|PATH; see "),
        (["print", "cost", "extra"], "tierwise print: 'extra' is no flag: it takes one NAME; see "),
        (["sim", "--port"], "tierwise sim: --port needs a value: --port PORT"),
        (["--bogus"], "tierwise: there is no flag --bogus; see tierwise --help"),
        (["--hlep"], "tierwise: there is no flag --hlep; did you mean --help?"),
        (["--version=3"], "tierwise: --version takes no value"),
        (["--"], "tierwise: there is no command behind --; see tierwise --help"),
        (["demo", "--json=/proc/nowhere/x"], "tierwise demo: --json=/proc/nowhere/x: cannot be written: No such file"),
        (["simulate", f"--output={'x' * 300}"], "tierwise simulate: --output=xxx"),
        (["standalone", f"--envoy={'x/' * 3000}"], "tierwise standalone: --envoy=x/x"),
        (["print", "dashbord"], "tierwise print: there is nothing called 'dashbord'; did you mean dashboards?"),
        (["print", "zzz"], "tierwise print: there is nothing called 'zzz'; there are default, config/conformance, "),
        (["print", "config"], "tierwise print: 'config' may be config/conformance or config/cost or "),
        (["sim", "--preset", "x"], "tierwise sim: --preset=x: there is no such preset; there are demo, "),
        (["sim", "--lora-modules", "=x"], "tierwise sim: --lora-modules==x: write NAME, or NAME=PATH"),
        (["sim", "--served-model-name=a", "--served-model-name=a"], "tierwise sim: --served-model-name, "),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence(refused: Refused, words: list[str], says: str) -> None:
    assert refused(*words).startswith(says)


ENDPOINT = ["--endpoint", "127.0.0.1:1"]
FREE = [f"--{name}=0" for name in ("grpc-port", "grpc-health-port", "metrics-port", "debug-port")]
FREE_TOO = [f"--{name}=0" for name in ("port", "metrics-port", "admin-port", "debug-port")]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["sim"], "--port"),
        (["sim", "--port=0"], "--kv-events-port"),
        (["sim", "--port=0", "--kv-events-port=0"], "--kv-replay-port"),
        (["standalone", *ENDPOINT, *FREE_TOO], "--port"),
        (["standalone", *ENDPOINT, *FREE_TOO], "--metrics-port"),
        (["standalone", *ENDPOINT, *FREE_TOO], "--admin-port"),
        (["standalone", *ENDPOINT, *FREE_TOO], "--debug-port"),
        (["standalone", *ENDPOINT, *FREE_TOO], "--grpc-port"),
    ],
)
def test_a_port_that_is_taken_is_named_with_its_flag(words: list[str], flag: str, taken: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "epp.commandline.cli", *words, f"{flag}={taken}"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"tierwise {words[0]}: ")
    assert str(taken) in last
    assert flag in last


@pytest.mark.parametrize("words", ["help", "print default", "size --model=qwen3-8b --gpu=l4"])
@pytest.mark.parametrize(
    ("output", "code", "says"),
    [
        (">/dev/full", 1, "tierwise: output cannot be written: No space left on device\n"),
        (">&-", 0, ""),
    ],
)
def test_output_that_goes_nowhere_is_no_traceback(words: str, output: str, code: int, says: str) -> None:
    line = f"{sys.executable} -m epp.commandline.cli {words} {output}"
    ran = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert (ran.returncode, ran.stderr) == (code, says)


def test_a_terminal_that_lacks_a_character_gets_a_question_mark_for_it() -> None:
    words = [sys.executable, "-m", "epp.commandline.cli", "size", "--model=qwen3-32b"]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, env=latin, check=False, timeout=100)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"\n? Without --gpu only" in ran.stdout


@pytest.mark.parametrize("words", ["help", "print default", "size --model=qwen3-8b --gpu=l4"])
def test_a_reader_that_leaves_ends_a_command_without_a_word(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "epp.commandline.cli", *words.split()]
    with open(writing, "wb") as output:  # noqa: PTH123 - a descriptor
        ran = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, check=False, timeout=100)
    assert (ran.returncode, ran.stderr) == (1, b"")


def test_an_interrupt_while_libraries_are_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    """Ctrl-C in the first second: ``click`` here is a module that is interrupted while it is imported."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = "from epp.commandline.entry import main; sys.exit(main(['sim']))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ended = subprocess.run(
        [sys.executable, "-c", begin + run], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
