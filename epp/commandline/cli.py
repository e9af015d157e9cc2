"""The command ``tierwise``: parses flags, prints help, turns refusals into one sentence and an exit code.

Each command imports its program only when it runs, so that help starts fast and a missing extra is one sentence.

Exit codes: 0 done, 1 output that cannot be written, 2 wrong usage or configuration, or a package that is missing, 130
interrupted; otherwise the program's own.

``epp.commandline.entry`` calls this module if the library for it is installed.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from epp.commandline.exit_codes import CANNOT_WRITE, DONE, INTERRUPTED, USAGE_ERROR
from epp.commandline.extras import remedy
from epp.commandline.installed import installed_version
from epp.commandline.programs import PROGRAMS, Program
from epp.errors import ConfigError
from epp.flags import arguments
from epp.flags.flag import Flag
from epp.printing.shell import example

UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of an output whose reader has left, or whose disk is full or broken."""
HELP = "help"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (the process's own by default) and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale that is not UTF-8 lacks the bullets and arrows of tables
        sys.stdout.reconfigure(errors="replace")
    try:
        code = _run_words(
            [*(word for word in words if word != HELP), "--help"] if words[:1] == [HELP] else words or ["--help"]
        )
        _flush()
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        return _give_up(error)
    return code


def _run_words(words: Sequence[str]) -> int:
    try:
        result = _command.main(list(words), prog_name="tierwise", standalone_mode=False)
    except (click.UsageError, ConfigError) as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context else " ".join(["tierwise", *_program_names(words)])
        message = error.format_message() if isinstance(error, click.UsageError) else str(error)
        click.echo(f"{name}: {message}", err=True)
        return USAGE_ERROR
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else DONE


def _flush() -> None:
    """Flush standard output. Raises: OSError if it cannot be written."""
    if sys.stdout is not None:  # as it is where the caller has closed it
        sys.stdout.flush()


def _give_up(error: OSError) -> int:
    """Return the exit code for output that cannot be written; only a reader that has left gets no sentence."""
    if error.errno != errno.EPIPE:
        click.echo(f"tierwise: output cannot be written: {error.strerror}", err=True)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - what is still held is tried once more at exit
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return CANNOT_WRITE


def _program_names(words: Sequence[str]) -> list[str]:
    return [word for word in words[:1] if word in {program.name for program in PROGRAMS}]


def _run(program: Program, given: Mapping[str, Any]) -> int:
    options = program.arguments().options(given)
    try:
        run = getattr(import_module(program.module), program.function)
        code: int = run(options) or 0
    except ModuleNotFoundError as error:
        if (missing := remedy(error, program.extra)) is None:
            raise
        raise ConfigError(missing) from error
    return code


class _Value(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Reads a flag's text with its reader; the error names the flag, the value and the values that are allowed."""

    def __init__(self, flag: Flag) -> None:
        self.flag = flag
        self.name = flag.metavar or "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        try:
            return self.flag.read(value)
        except ValueError as error:
            raise click.UsageError(f"--{self.flag.name}={value}: {error}", ctx) from error


class _Option(click.Option):
    """Presents a flag of ours to click."""

    def __init__(self, flag: Flag) -> None:
        super().__init__(
            [f"--{flag.name}", flag.name.replace("-", "_")],
            type=_Value(flag), multiple=flag.repeated, help=flag.help or None, metavar=flag.metavar or None,
        )  # fmt: skip
        self.flag = flag

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002
        dashes = "-" if len(self.flag.name) == 1 else "--"
        return f"{dashes}{self.flag.name} {self.flag.metavar}".rstrip(), self.flag.help


class _Subcommand(click.Command):
    """The command of a program: it accepts Go's spellings, and its help is grouped and ends with examples."""

    def __init__(self, program: Program) -> None:
        super().__init__(
            program.name, callback=self._invoke,
            help=program.about, short_help=program.summary, context_settings=_SETTINGS,
        )  # fmt: skip
        self.program = program

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; they are made at the first call, since help on all commands needs none of them."""
        if not self.params:
            self.params = [_Option(flag) for flag in self.program.flags]
            if self.program.argument:
                self.params.append(click.Argument([ARGUMENT], required=False, metavar=f"[{self.program.argument}]"))
        return super().get_params(ctx)

    def _invoke(self, **given: Any) -> int:
        by_option = {flag.name.replace("-", "_"): flag.name for flag in self.program.flags} | {ARGUMENT: ARGUMENT}
        return _run(self.program, {by_option[k]: v for k, v in given.items() if v is not None and v != ()})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, arguments.normalise(args, self.program.flags))
        except click.NoSuchOption as error:
            raise _no_such_flag(error, [flag.name for flag in self.program.flags], ctx) from error
        except click.BadOptionUsage as error:
            flag = next(flag for flag in self.program.flags if f"--{flag.name}" == error.option_name)
            raise click.UsageError(
                f"--{flag.name} needs a value: --{flag.name} {flag.metavar}".rstrip(), ctx
            ) from error
        if ctx.args and not ctx.resilient_parsing:
            takes = f"one {self.program.argument}" if self.program.argument else "flags only"
            for flag in (flag for flag in self.program.flags if flag.name == self.program.first_flag):
                takes += f", such as --{flag.name} {flag.metavar}"
            raise click.UsageError(f"{ctx.args[0]!r} is no flag: it takes {takes}; see {ctx.command_path} --help", ctx)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, _Option) and record:
                groups.setdefault(param.flag.group, []).append(record)
        for group, records in groups.items():
            with formatter.section(click.style(group, bold=True)):
                formatter.write_dl(records, col_max=36)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section(click.style("Examples", bold=True)):
            for what, line in self.program.examples:
                formatter.write(f"  # {what}\n{example(line, formatter.width)}\n")
        formatter.write_paragraph()
        formatter.write_text(
            "Booleans are written --flag, --flag=true or --flag=false; durations 50ms, 2s, 1m30s; sizes 10MiB, 25MB; "
            "one dash will do for two."
        )


class _Group(click.Group):
    """The top level, which answers an unknown command with the nearest known one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args == ["--"]:
            raise click.UsageError(f"there is no command behind --; see {ctx.command_path} --help", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _no_such_flag(error, ["help", "version"], ctx) from error
        except click.BadOptionUsage as error:
            raise click.UsageError(f"{error.option_name} takes no value", ctx) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            near = get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _no_such_flag(error: click.NoSuchOption, known: Sequence[str], ctx: click.Context) -> click.UsageError:
    near = get_close_matches(error.option_name.lstrip("-"), known, n=1)
    hint = f"did you mean --{near[0]}?" if near else f"see {ctx.command_path} --help"
    return click.UsageError(f"there is no flag {error.option_name}; {hint}", ctx)


ARGUMENT = "name"
_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "show_default": False,
    "allow_extra_args": True,
}
_command = _Group(
    "tierwise",
    help="Sends each LLM request to the vLLM endpoint where it will start answering soonest, knowing in which memory "
    "tier (GPU, CPU, storage) each endpoint still holds the request's prefix.",
    commands=[_Subcommand(program) for program in PROGRAMS],
    context_settings=_SETTINGS,
    epilog="`tierwise demo` shows it; `tierwise help COMMAND` explains a command with examples.",
)


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    """Print the version and end the command; the version is read only now, since that takes 10 ms."""
    if value and not ctx.resilient_parsing:
        click.echo(f"tierwise, version {installed_version()}")
        ctx.exit()


click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version,
    help="Show the version and exit.",
)(_command)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
