"""Requests to the API server whose failures are kept as what could not be looked at, and do not end the command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from epp.doctor.finding import Unread
from epp.errors import ConfigError
from epp.kube.client import Client, Page
from epp.kube.errors import KubeError, Refused
from epp.kube.objects import Decoder, Object
from epp.kube.pages import PageDecoder, PageSize, read_list

T = TypeVar("T", bound=Object)

MOST_OF_A_PAGE = 500
"""The most objects that a page of a list is asked for. Source: kubectl's ``--chunk-size``."""


class Asking:
    """Reads objects of one namespace. Owner: the event loop.

    Invariant: every read that failed for another reason than that there is no such object is in ``unread``.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.unread: dict[Unread, None] = {}

    async def listed(self, path: str, resource: str, kind: type[T]) -> list[T] | None:
        """Return the objects of ``resource`` at ``path``; None where the API server does not know the resource.

        The list is empty where it cannot be read, which is in ``unread`` then.
        """
        try:
            return (await read_list(self.client, path, PageDecoder(kind), {}, PageSize(MOST_OF_A_PAGE)))[0]
        except Refused as error:
            if error.status == 404:
                return None
            self._keep(resource, "list", error)
        except (KubeError, ConfigError) as error:
            self._keep(resource, "list", error)
        return []

    async def one(self, path: str, resource: str, name: str, kind: type[T]) -> T | None:
        """Return one object; None if there is none. Raises: KeyError if it cannot be read, which is kept."""
        try:
            return await self.client.get(path, Decoder(kind))
        except Refused as error:
            if error.status == 404:
                return None
            self._keep(resource, "get", error)
        except (KubeError, ConfigError) as error:
            self._keep(resource, "get", error)
        raise KeyError(name)

    async def page(self, pod: str, port: int, path: str, query: Mapping[str, str], within_s: float) -> Page | None:
        """Return a page of a pod through the API server's proxy; None if it cannot be read, which is kept."""
        at = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{port}/proxy{path}"
        try:
            async with asyncio.timeout(within_s):
                return await self.client.page(at, query)
        except TimeoutError:
            self._keep_page(path, pod, f"no answer in {within_s:g} s")
        except Refused as error:
            if error.status == 403:
                self._keep("pods/proxy", "get", error)
            else:
                self._keep_page(path, pod, f"port {port} does not answer: {_short(error)}")
        except (KubeError, ConfigError) as error:
            self._keep("pods/proxy", "get", error)
        return None

    def too_long(self, path: str, pod: str, size: int) -> None:
        """Keep that a page of a pod is too long to be read."""
        self._keep_page(path, pod, f"it has {size:,} bytes")

    def _keep_page(self, path: str, pod: str, why: str) -> None:
        self.unread[Unread(f"the page {path} of Pod {self.namespace}/{pod}", why)] = None

    def _keep(self, resource: str, verb: str, error: KubeError | ConfigError) -> None:
        forbidden = isinstance(error, Refused) and error.status == 403
        right = f"{verb} {resource} in the namespace {self.namespace}" if forbidden else ""
        why = f"this account may not {right}" if forbidden else _short(error)
        self.unread[Unread(resource, why, right)] = None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
