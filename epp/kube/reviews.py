"""Reviews by the API server: which user a token belongs to, and what a user or the picker itself may do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused
from epp.kube.objects import Decoder
from epp.kube.rights import Right

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
TOKEN_REVIEWS = f"/apis/{AUTHENTICATION}/v1/tokenreviews"


class User(msgspec.Struct, frozen=True):
    """A user as a TokenReview returns it; a SubjectAccessReview is given the same fields unchanged."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _Reviewed(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User | None = None
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _Reviewed = _Reviewed()


class _Whoami(msgspec.Struct, frozen=True, rename="camel"):
    user_info: User = User()


class _SelfReview(msgspec.Struct, frozen=True):
    status: _Whoami = _Whoami()


class _Decision(msgspec.Struct, frozen=True, rename="camel"):
    allowed: bool = False
    evaluation_error: str = ""


class _AccessReview(msgspec.Struct, frozen=True):
    status: _Decision | None = None


class _Group(msgspec.Struct, frozen=True):
    kind: str = ""


_TOKEN, _SELF = Decoder(_TokenReview), Decoder(_SelfReview)
_ACCESS, _GROUP = Decoder(_AccessReview), Decoder(_Group)


async def user_of(client: Client, token: str) -> User | None:
    """Return whose ``token`` it is; None for one that the API server does not accept.

    Raises: KubeError, ConfigError when there is no answer.
    """
    body = _review(AUTHENTICATION, "TokenReview", {"token": token})
    status = (await client.send("POST", TOKEN_REVIEWS, body, _TOKEN, secret=token)).status
    return status.user if status.authenticated else None


async def may_read(client: Client, user: User, verb: str, path: str) -> bool:
    """Return whether ``user`` may ``verb`` the page at ``path``, which is no object of the API.

    Raises: KubeError, ConfigError when there is no answer.
    """
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        "nonResourceAttributes": {"path": path, "verb": verb},
    }
    return await _allowed(client, "SubjectAccessReview", spec)


async def may_account(client: Client, namespace: str, account: str, right: Right) -> bool:
    """Return whether a service account has ``right``. Raises: KubeError, ConfigError when there is no answer."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    user = {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}
    return await _allowed(client, "SubjectAccessReview", {**user, "resourceAttributes": _attributes(right)})


async def may_i(client: Client, right: Right) -> bool:
    """Return whether the picker itself has ``right``. Raises: KubeError, ConfigError when there is no answer."""
    return await _allowed(client, "SelfSubjectAccessReview", {"resourceAttributes": _attributes(right)})


async def my_name(client: Client) -> str:
    """Return the name that the API server has for the picker; empty if it does not say."""
    body = _review(AUTHENTICATION, "SelfSubjectReview", {})
    try:
        review = await client.send("POST", f"/apis/{AUTHENTICATION}/v1/selfsubjectreviews", body, _SELF)
    except (KubeError, ConfigError):  # older than Kubernetes 1.28, or not allowed: what it is for works without it
        return ""
    return review.status.user_info.username


async def is_served(client: Client, version: str) -> bool:
    """Return whether the API server knows ``version``, such as ``llm-d.ai/v1alpha2``.

    Raises: KubeError, ConfigError when there is no answer.
    """
    try:
        await client.get(f"/apis/{version}", _GROUP)
    except Refused as error:
        if error.status == 404:
            return False
        raise
    return True


async def _allowed(client: Client, kind: str, spec: Mapping[str, object]) -> bool:
    path = f"/apis/{AUTHORIZATION}/v1/{kind.lower()}s"
    status = (await client.send("POST", path, _review(AUTHORIZATION, kind, spec), _ACCESS)).status
    if status is None:
        raise KubeError(f"POST {path}: the answer is no review; is a proxy in between?")
    return status.allowed


def _attributes(right: Right) -> dict[str, str]:
    resource, _, part = right.resource.partition("/")
    return {
        "group": right.group,
        "resource": resource,
        "subresource": part,
        "verb": right.verb,
        "namespace": right.namespace or "",
    }


def _review(group: str, kind: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
