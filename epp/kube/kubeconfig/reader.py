"""Reads kubeconfig files with kubernetes-asyncio, and prints what they say as JSON: a program of its own.

    python -m epp.kube.kubeconfig.reader cluster|credentials FOLDER FILE...

The picker runs it as a process (``epp.kube.kubeconfig.files``), so that the library's memory, a plugin that hangs and
one that asks for a terminal stay outside of the picker. Certificates that stand in a kubeconfig are written to FOLDER.
``cluster`` runs no plugin. The program prints one ``Reading``, and nothing else, on its standard output.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from epp.kube.kubeconfig import bounded_plugin
from epp.kube.kubeconfig.files import Reading

_PATHS = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
}
"""The fields that are paths, relative to the folder of the file that has them."""
_KINDS = ("clusters", "contexts", "users")
_SHOWN = 300
"""How many characters of a plugin's error are passed on."""


class _Refused(Exception):
    """The files cannot be used, for the reason in the message."""


def read(files: Sequence[str], folder: str, *, credentials: bool) -> Reading:
    """Return what ``files`` say, merged as kubectl merges them: the first file that has a value wins."""
    try:
        config, context = _merged(files)
        return _read(config, context, folder, credentials=credentials)
    except _Refused as error:
        return Reading(refused=f"{', '.join(files)}: {error}")


def _merged(files: Sequence[str]) -> tuple[ConfigNode, str]:
    """Return the merged files and the name of the chosen context. Raises: _Refused."""
    context = ""
    for file in files:
        try:
            alone = KubeConfigMerger(file).config
            if alone is None or not all(isinstance(item.value, dict) for kind in _KINDS for item in alone.value[kind]):
                raise TypeError("an entry is not a mapping")  # noqa: TRY301 (told as the library's own)
            context = context or alone.value.get("current-context") or ""
        except Exception as error:  # whatever YAML holds: the library checks nothing of it
            which = file if len(files) > 1 else "it"  # the files are named before the sentence
            raise _Refused(f"{which} cannot be read as a kubeconfig: {_told(error)}") from error
    config = KubeConfigMerger(os.pathsep.join(files)).config
    if config is None:
        raise _Refused("none of the files is there any more")
    for kind, (body, paths) in _PATHS.items():
        for item in config.value[kind]:
            folder = Path(item.path).absolute().parent
            item.name = f"{kind} of {item.path}"  # the library's name has the whole entry in it, tokens too
            fields = item.value.get(body)
            if isinstance(fields, dict):
                fields.update({path: str(folder / fields[path]) for path in paths if fields.get(path)})
                _find_plugin(fields.get("exec"), folder)
    return config, context


def _find_plugin(plugin: Any, folder: Path) -> None:
    """Make the path of a plugin absolute; a name without a slash is looked up on the PATH."""
    if isinstance(plugin, dict) and "/" in str(plugin.get("command")):
        plugin["command"] = str(folder / plugin["command"])


def _read(config: ConfigNode, context: str, folder: str, *, credentials: bool) -> Reading:
    if not context:
        raise _Refused(
            f"no context is chosen; run kubectl config use-context with one of: {_names(config, 'contexts')}"
        )
    chosen = _entry(config, "contexts", context, "current-context").get("context") or {}
    cluster = _entry(config, "clusters", chosen.get("cluster"), f"the context {context!r}").get("cluster") or {}
    user = _entry(config, "users", chosen.get("user"), f"the context {context!r}").get("user") or {}
    if not cluster.get("server"):
        raise _Refused(f"the cluster {chosen['cluster']!r} has no server, which is the API server's URL")
    if user.get("auth-provider"):
        raise _Refused(f"the user {chosen['user']!r} has an auth-provider, which is not supported; use an exec plugin")
    plugin = user.pop("exec", None) or {}
    if plugin.get("interactiveMode") == "Always":
        raise _Refused(
            f"the exec plugin {plugin.get('command')!r} asks for a terminal (interactiveMode: Always), which a picker "
            "does not have; use a token, or a client certificate"
        )
    try:
        loaded = asyncio.run(_load(config, context, folder))
    except Exception as error:
        raise _Refused(f"the context {context!r} cannot be used: {_told(error)}") from error
    failed = ""
    if plugin and credentials:
        user["exec"] = _bounded(plugin)
        try:
            loaded = asyncio.run(_load(config, context, folder))
        except Exception as error:
            failed = f"the exec plugin {plugin.get('command')!r} failed: {_told(error)}"
        else:
            if not loaded.api_key and not getattr(loaded, "cert_file", None):
                failed = f"the exec plugin {plugin.get('command')!r} printed neither a token nor a client certificate"
    files = (getattr(loaded, name, None) for name in ("ssl_ca_cert", "cert_file", "key_file"))
    return Reading(
        failed=failed,
        server=loaded.host,
        namespace=chosen.get("namespace") or None,
        plugin=str(plugin.get("command", "")),
        authorization=loaded.api_key.get("BearerToken"),
        expires_at=loaded.expires_at,
        authority=getattr(loaded, "ssl_ca_cert", None),
        certificate=getattr(loaded, "cert_file", None),
        key=getattr(loaded, "key_file", None),
        verify=getattr(loaded, "verify_ssl", True),
        tls_name=getattr(loaded, "tls_server_name", None),
        proxy=getattr(loaded, "proxy", None),
        followed=tuple(
            file for file in (*files, user.get("tokenFile")) if file and Path(folder) not in Path(file).parents
        ),
    )


def _bounded(plugin: dict[str, Any]) -> dict[str, Any]:
    """Return the plugin with a limit of what it may print."""
    if not plugin.get("command"):
        return plugin
    words = ["-P", bounded_plugin.__file__, str(plugin["command"]), *map(str, plugin.get("args") or ())]
    return {**plugin, "command": sys.executable, "args": words}


async def _load(config: ConfigNode, context: str, folder: str) -> SimpleNamespace:
    """Return what the library sets on a client's configuration."""
    loader = KubeConfigLoader(config, active_context=context, config_base_path="", temp_file_path=folder)
    loaded = SimpleNamespace(api_key={})
    await loader.load_and_set(loaded)
    expiry = getattr(loader, "exec_plugin_expiry", None)
    loaded.expires_at = None if expiry is None else expiry.timestamp()
    return loaded


def _entry(config: ConfigNode, kind: str, name: object, of: str) -> Any:
    if not name:
        raise _Refused(f"{of} names none of the {kind}; there are: {_names(config, kind)}")
    for item in config.value[kind]:
        if item.value["name"] == name:
            return item.value
    raise _Refused(f"{of} names {name!r}, which is not among the {kind}; there are: {_names(config, kind)}")


def _names(config: ConfigNode, kind: str) -> str:
    return ", ".join(sorted(str(item.value["name"]) for item in config.value[kind])) or "none"


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    told = text if type(error).__name__ == "ConfigException" else f"{type(error).__name__}: {text}"
    return told if len(told) <= _SHOWN else told[:_SHOWN] + "..."


def main() -> None:
    """Read by the command line, and print."""
    what, folder, *files = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(read(files, folder, credentials=what == "credentials")))
    sys.stdout.buffer.flush()
    os._exit(0)  # at a usual exit the library removes the files in FOLDER, which the picker has yet to read


if __name__ == "__main__":
    main()
