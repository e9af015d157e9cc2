"""One thing that is wrong: what, why, and what mends it."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """What a rule has found out about one object."""

    cause: str
    """A short name that stays the same from release to release, such as ``selector-without-pods``."""
    object: str
    """The kind, namespace and name, such as ``InferencePool llm/qwen``."""
    text: str
    """One sentence: the cause, and what follows from it."""
    remedy: str
    """A command for a shell, or YAML, that mends it."""


class Unread(msgspec.Struct, frozen=True):
    """Something that could not be looked at, so that no rule judges it."""

    what: str
    why: str
    right: str = ""
    """The right that is missing, such as ``list pods in the namespace llm``; empty for another reason."""


COULD_NOT_LOOK = "could-not-look"


def unread_finding(unread: Unread, namespace: str) -> Finding:
    """Return what could not be looked at as a finding, with a command for an administrator where a right is missing."""
    verb, _, rest = unread.right.partition(" ")
    resource = rest.split(" ")[0]
    remedy = (
        f"kubectl -n {namespace} create role tierwise-doctor --verb={verb} --resource={resource}, and bind it"
        if unread.right
        else "repeat the command; tierwise doctor --help lists what it reads"
    )
    return Finding(COULD_NOT_LOOK, unread.what, f"could not be looked at: {unread.why}.", remedy)
