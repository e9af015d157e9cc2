"""The command ``tierwise``: parses flags, prints help, turns refusals into one sentence and an exit code.

Each command imports its program only when it runs, so that help answers at once and a missing extra is a sentence.

Exit codes: 0 done, 2 wrong usage or configuration, 130 interrupted; otherwise the program's own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from textwrap import wrap
from typing import Any

from epp import arguments, flags
from epp.errors import ConfigError
from epp.programs import PROGRAMS, Program

try:
    import click
except ModuleNotFoundError:  # the base distribution is a library
    sys.exit("tierwise: the command needs the extra epp: pip install '.[epp]' in a clone of Tierwise")

USAGE_ERROR = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (the process's own by default) and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        result = _command.main(words or ["--help"], prog_name="tierwise", standalone_mode=False)
    except (click.UsageError, ConfigError) as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context else " ".join(["tierwise", *_program_names(words)])
        message = error.format_message() if isinstance(error, click.UsageError) else str(error)
        click.echo(f"{name}: {message}", err=True)
        return USAGE_ERROR
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _program_names(words: Sequence[str]) -> list[str]:
    return [word for word in words[:1] if word in {program.name for program in PROGRAMS}]


def _run(program: Program, given: Mapping[str, Any]) -> int:
    options = program.options(given)
    try:
        run = getattr(import_module(program.module), program.function)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("epp", "scorers"):
            raise
        needs = f"the package {error.name} is missing; pip install '.[{program.extra}]' in a clone of Tierwise"
        raise ConfigError(needs) from error
    code: int = run(options) or 0
    return code


class _Value(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Reads a flag's text with its reader; the error names flag, value and what is allowed."""

    def __init__(self, flag: flags.Flag) -> None:
        self.flag = flag
        self.name = flag.metavar or "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        try:
            return self.flag.read(value)
        except ValueError as error:
            raise click.UsageError(f"--{self.flag.name}={value}: {error}", ctx) from error


class _Option(click.Option):
    """A flag of ours as click sees it."""

    def __init__(self, flag: flags.Flag) -> None:
        super().__init__(
            [f"--{flag.name}", flag.name.replace("-", "_")],
            type=_Value(flag), multiple=flag.repeated, help=flag.help or None, metavar=flag.metavar or None,
        )  # fmt: skip
        self.flag = flag

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002
        dashes = "-" if len(self.flag.name) == 1 else "--"
        return f"{dashes}{self.flag.name} {self.flag.metavar}".rstrip(), self.flag.help


class _Subcommand(click.Command):
    """A program's command: Go's spellings are understood, help is grouped and ends with examples."""

    def __init__(self, program: Program) -> None:
        super().__init__(
            program.name, params=[_Option(flag) for flag in program.flags], callback=self._invoke,
            help=program.about, short_help=program.summary, context_settings=_SETTINGS,
        )  # fmt: skip
        self.program = program

    def _invoke(self, **given: Any) -> int:
        by_option = {flag.name.replace("-", "_"): flag.name for flag in self.program.flags}
        return _run(self.program, {by_option[k]: v for k, v in given.items() if v is not None and v != ()})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, arguments.normalise(args, self.program.flags))
        except click.NoSuchOption as error:
            known = [flag.name for flag in self.program.flags]
            near = get_close_matches(error.option_name.lstrip("-"), known, n=1)
            hint = f"did you mean --{near[0]}?" if near else f"see {ctx.command_path} --help"
            raise click.UsageError(f"there is no flag {error.option_name}; {hint}", ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        refused: list[str] = []
        for param in self.params:
            record = param.get_help_record(ctx)
            if isinstance(param, _Option) and param.flag.refusal:
                refused.append(f"--{param.flag.name}")
            elif isinstance(param, _Option) and record:
                groups.setdefault(param.flag.group, []).append(record)
        for group, records in groups.items():
            with formatter.section(click.style(group, bold=True)):
                formatter.write_dl(records, col_max=36)
        if refused:
            with formatter.section(click.style("Known, and refused by name until they can be honoured", bold=True)):
                width = formatter.width - formatter.current_indent
                for line in wrap(" ".join(refused), width, break_on_hyphens=False):
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section(click.style("Examples", bold=True)):
            for what, line in self.program.examples:
                formatter.write(f"  # {what}\n  {line}\n")
        formatter.write_paragraph()
        formatter.write_text(
            "Booleans are written --flag, --flag=true or --flag=false; durations 50ms, 2s, 1m30s; sizes 10MiB, 25MB; "
            "one dash will do for two."
        )


class _Group(click.Group):
    """The top level: an unknown command is answered with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            near = get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _version() -> str:
    try:
        return version("tierwise")
    except PackageNotFoundError:
        return "(not installed)"


_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": False}
_command = _Group(
    "tierwise",
    help="Sends each LLM request to the vLLM endpoint where it will start answering soonest, knowing in which memory "
    "tier (GPU, CPU, storage) each endpoint still holds the request's prefix.",
    commands=[_Subcommand(program) for program in PROGRAMS],
    context_settings=_SETTINGS,
    epilog="`tierwise demo` shows it; `tierwise COMMAND --help` explains a command with examples.",
)
click.version_option(_version(), prog_name="tierwise")(_command)


if __name__ == "__main__":
    sys.exit(main())
