"""Detects whether a chat template takes a message's content as a list of parts, or as one text.

vLLM looks for a loop over the content, and so does this module. It follows names that stand for all messages, loops
over these, names and macros that receive a message's content, and loops over any of it.

Source: the loops that vLLM 0.32 recognizes, by reading. ``--chat-template-content-format`` overrides the result there,
and ``contentFormat`` overrides it here.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes


def takes_parts(tree: nodes.Template) -> bool:
    """Return whether any loop in ``tree`` runs over a message's content."""
    everyone = _aliases(tree, "messages")
    each = {
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and any(_is_of(loop.iter, name) for name in everyone)
    }
    in_macros = {id(loop) for macro in tree.find_all(nodes.Macro) for loop in macro.find_all(nodes.For)}
    given = {
        id(loop): names
        for macro in tree.find_all(nodes.Macro)
        if (names := _given_content(tree, macro, each))
        for loop in macro.find_all(nodes.For)
    }
    for loop in tree.find_all(nodes.For):
        if any(_is_of(loop.iter, name, "content") for name in each):
            return True
        if not isinstance(loop.iter, nodes.Name):
            continue
        if loop.iter.name in given.get(id(loop), ()):
            return True
        if loop.iter.name == "content" and id(loop) not in in_macros:
            return True
    return False


def _aliases(tree: nodes.Template, name: str) -> set[str]:
    """Return the names that stand for the variable ``name`` or for a part of it."""
    found, new = {name}, [name]
    while new:
        known = new.pop()
        for assigned in tree.find_all(nodes.Assign):
            target = assigned.target
            if isinstance(target, nodes.Name) and target.name not in found and _is_of(assigned.node, known):
                found.add(target.name)
                new.append(target.name)
    return found


def _given_content(tree: nodes.Template, macro: nodes.Macro, each: set[str]) -> set[str]:
    """Return the parameters of ``macro`` that receive a message's content in at least one call."""
    parameters = [argument.name for argument in macro.args]
    found = set()
    for call in _calls(tree, macro.name):
        pairs = [*zip(parameters, call.args, strict=False), *((word.key, word.value) for word in call.kwargs)]
        found |= {
            name for name, value in pairs if name in parameters and any(_is_of(value, one, "content") for one in each)
        }
    return found


def _calls(tree: nodes.Template, name: str) -> Iterator[nodes.Call]:
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == name:
            yield call


def _is_of(node: nodes.Node | None, name: str, field: str | None = None) -> bool:
    """Return whether ``node`` is the variable ``name`` or its ``field``, possibly filtered, tested or sliced."""
    while True:
        if isinstance(node, nodes.Filter | nodes.Test) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
        else:
            break
    if field is None:
        return isinstance(node, nodes.Name) and node.name == name and node.ctx == "load"
    if isinstance(node, nodes.Getitem):
        named = isinstance(node.arg, nodes.Const) and node.arg.value == field
    else:
        named = isinstance(node, nodes.Getattr) and node.attr == field
    return named and isinstance(node, nodes.Getitem | nodes.Getattr) and _is_of_variable(node.node, name)


def _is_of_variable(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name and node.ctx == "load"
