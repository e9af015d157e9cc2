"""Commands for a shell, as lines that can be copied."""

from __future__ import annotations

import re


def example(line: str, width: int) -> str:
    """Return a line for the shell, indented, and continued on further lines where it is longer than ``width``.

    It breaks at blanks outside of quotes; a word that is longer than a line stays whole.
    """
    lines, indent = [""], "  "
    for word in re.findall(r"(?:'[^']*'|[^\s'])+", line):
        if lines[-1] and len(f"{indent}{lines[-1]} {word} \\") > width:
            lines[-1] = f"{indent}{lines[-1]} \\"
            lines.append("")
            indent = "      "
        lines[-1] += f" {word}" if lines[-1] else word
    lines[-1] = indent + lines[-1]
    return "\n".join(lines)
