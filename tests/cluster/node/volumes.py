"""A pod's volumes as folders, written as a kubelet does: changed all at once, by the symlink ``..data``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.node.api import Api, Copy, Object
from tests.cluster.node.fields import NotYet, contents, field, resource

TOKEN_S = 3607
RENEWED_AT = 0.8
"""The part of a token's time after which it is replaced."""


class Volumes:
    """The volumes of one pod, below ``folder``. ``renew`` writes what changed since; it raises NotYet."""

    def __init__(self, api: Api, folder: Path, maps: Copy, secrets: Copy) -> None:
        self._api, self._folder, self._maps, self._secrets = api, folder, maps, secrets
        self._tokens: dict[tuple[str, int], tuple[bytes, float]] = {}

    def path(self, name: str) -> Path:
        """Return the folder of a volume."""
        return self._folder / name

    def forget_tokens(self) -> None:
        """Have new tokens written at the next ``renew``."""
        self._tokens.clear()

    async def renew(self, pod: Object, address: str) -> None:
        """Write every volume. Raises: NotYet for a ConfigMap or Secret that is missing, Refused for a token."""
        for volume in pod["spec"].get("volumes", ()):
            target = self.path(volume["name"])
            target.mkdir(parents=True, exist_ok=True)
            target.chmod(0o777)
            files = await self._files(pod, volume, address)
            if files is not None:
                _write(target, files)

    async def _files(self, pod: Object, volume: Object, address: str) -> dict[str, bytes] | None:
        """Return what a volume holds; None for one that is the pod's own."""
        namespace = pod["metadata"]["namespace"]
        if "emptyDir" in volume:
            return None
        if "configMap" in volume:
            return self._object(self._maps, namespace, volume["configMap"]["name"], volume["configMap"])
        if "secret" in volume:
            return self._object(self._secrets, namespace, volume["secret"]["secretName"], volume["secret"])
        if "downwardAPI" in volume:
            return _downward(pod, volume["downwardAPI"], address)
        if "projected" in volume:
            files: dict[str, bytes] = {}
            for source in volume["projected"]["sources"]:
                files |= await self._projected(pod, source, address)
            return files
        if "hostPath" in volume or "persistentVolumeClaim" in volume:
            return None  # a folder of the pod's own
        raise NotYet(f"this node has no volumes like {volume}")

    async def _projected(self, pod: Object, source: Object, address: str) -> dict[str, bytes]:
        namespace = pod["metadata"]["namespace"]
        if "serviceAccountToken" in source:
            return {source["serviceAccountToken"]["path"]: await self._token(pod, source["serviceAccountToken"])}
        if "configMap" in source:
            return self._object(self._maps, namespace, source["configMap"]["name"], source["configMap"])
        if "secret" in source:
            return self._object(self._secrets, namespace, source["secret"]["name"], source["secret"])
        return _downward(pod, source["downwardAPI"], address)

    async def _token(self, pod: Object, source: Object) -> bytes:
        audience, seconds = source.get("audience", ""), source.get("expirationSeconds", TOKEN_S)
        kept = self._tokens.get((audience, seconds))
        if kept is not None and time.monotonic() < kept[1]:
            return kept[0]
        metadata = pod["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"expirationSeconds": seconds, "boundObjectRef": reference, "audiences": [audience] if audience else []}
        account = pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token: str = (await self._api.request("POST", path, review))["status"]["token"]
        self._tokens[audience, seconds] = token.encode(), time.monotonic() + seconds * RENEWED_AT
        return token.encode()

    @staticmethod
    def _object(copy: Copy, namespace: str, name: str, source: Object) -> dict[str, bytes]:
        found = copy.get(namespace, name)
        if found is None:
            if source.get("optional"):
                return {}
            raise NotYet(f'"{name}" not found')
        data = contents(found)
        if "items" not in source:
            return data
        missing = [item["key"] for item in source["items"] if item["key"] not in data]
        if missing and not source.get("optional"):
            raise NotYet(f'"{name}" has no key {missing[0]}')
        return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}


def _downward(pod: Object, source: Object, address: str) -> dict[str, bytes]:
    files = {}
    containers = {one["name"]: one for one in pod["spec"]["containers"]}
    for item in source["items"]:
        if "fieldRef" in item:
            value = field(pod, item["fieldRef"]["fieldPath"], address)
        else:
            reference = item["resourceFieldRef"]
            value = resource(containers[reference["containerName"]], reference)
        files[item["path"]] = value.encode()
    return files


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Make ``target`` hold ``files``: a new folder, and one rename that swaps it for the old one."""
    data = target / "..data"
    old = data.resolve() if data.is_symlink() else None
    if old is not None and {str(p.relative_to(old)): p.read_bytes() for p in old.rglob("*") if p.is_file()} == files:
        return
    new = target / f"..{time.time_ns()}"
    for name, content in files.items():
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_bytes(content)
    new.mkdir(exist_ok=True)
    swap = target / "..data_tmp"
    swap.symlink_to(new.name)
    os.replace(swap, data)  # noqa: PTH105
    tops = {name.split("/", 1)[0] for name in files}
    for top in tops:
        if not (target / top).is_symlink():
            (target / top).symlink_to(f"..data/{top}")
    for link in target.iterdir():
        if not link.name.startswith("..") and link.name not in tops:
            link.unlink()
    if old is not None:
        shutil.rmtree(old)
