"""Restricts a request to the endpoints that may serve its model."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import structs

from epp.client import Api, client_of
from epp.decision import RequestHead
from epp.errors import ModelNotFound, NoEndpoints
from epp.parsers.base import UNREAD, Parsed
from epp.parsers.identity import of_model
from epp.served.card import ModelCard
from epp.served.catalog import Catalog
from epp.served.listing import ModelAnswer, anthropic_card, anthropic_list, openai_list, requested_model, union
from scorers.base import Candidate, Prompt, Silence
from scorers.labels.served_model_filter import ServedModelFilter

SHOWN = 128
"""Maximum number of characters of a client's model name in an error."""
MOST_NAMED = 8
"""Maximum number of models that a refusal names."""
ATTEMPTS = 17
"""Number of addresses in a destination if endpoints serve different models: the number of attempts of the proxy of
`tierwise standalone` (``epp.standalone.routes.RETRIES``), and more than other proxies are usually set to."""


class _Named(msgspec.Struct):
    model: str | None = None


_NAMED = msgspec.json.Decoder(_Named)


class _Listed:
    """The models of some endpoints as one list, with the response bodies made of it."""

    def __init__(self, addresses: Sequence[str], edition: int, lists: Sequence[Sequence[ModelCard]]) -> None:
        self.addresses = addresses
        self.edition = edition
        self.cards = union(lists)
        self.unknown = not lists
        """Whether none of the endpoints has listed its models."""
        self._bodies: dict[bool, bytes] = {}

    def body(self, *, anthropic: bool) -> bytes:
        """Return the list in Anthropic's form, or in OpenAI's."""
        if anthropic not in self._bodies:
            self._bodies[anthropic] = anthropic_list(self.cards) if anthropic else openai_list(self.cards)
        return self._bodies[anthropic]


class ModelRouter:
    """Routes requests by model, if its filter is enabled; otherwise it does nothing. Owner: the event loop."""

    def __init__(self, catalog: Catalog, narrower: ServedModelFilter | None) -> None:
        """``narrower`` uses the models of ``catalog`` from now on."""
        self.catalog = catalog
        self.narrower = narrower if narrower is not None and narrower.parameters.enabled else None
        if self.narrower is not None:
            self.narrower.served = catalog.served
        catalog.filters = self.narrower is not None
        self._listed: _Listed | None = None

    def check(self, model: str) -> None:
        """Refuse a ``model`` that no endpoint may serve. Raises: ModelNotFound."""
        if self.narrower is not None and self.narrower.serving(model) == _NO_ENDPOINT:
            self.catalog.mark_outdated(None)
            raise ModelNotFound(self._refusal(model))

    def keep(self, model: str, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the ``candidates`` that may serve ``model``. Raises: ModelNotFound, NoEndpoints if there is none."""
        if self.narrower is None or (serving := self.narrower.serving(model)) is None:
            return candidates
        kept = [c for c in candidates if c.slot in serving]
        if not kept:
            self.check(model)
            raise NoEndpoints(f"none of the endpoints that the proxy allows serves the model `{_shown(model)}`")
        if all(c.silence is Silence.GONE for c in kept):  # a proxy would try the others, which answer with 404
            some = ", ".join(c.address for c in kept[:MOST_NAMED])
            serves = "serves" if any(model in self.catalog.names(c.address) for c in kept) else "may serve"
            raise NoEndpoints(f"every endpoint that {serves} the model `{_shown(model)}` is out of reach: {some}")
        return kept

    def retried_at(self, model: str, chosen: Sequence[Candidate], candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return where the proxy is to retry a request for ``model`` after ``chosen``: at the other ``candidates``, and
        then at all of them again, ``ATTEMPTS`` in all.

        A proxy that has tried its whole list chooses by itself, and another model's engine would answer with 404. Empty
        where every endpoint may serve ``model``.
        """
        if self.narrower is None or self.narrower.serving(model) is None:
            return ()
        first = [c.address for c in chosen]
        tried = first + [c.address for c in candidates[:ATTEMPTS] if c.address not in first]
        return tuple((tried * -(-ATTEMPTS // len(tried)))[len(first) : ATTEMPTS])

    def answer(self, head: RequestHead, candidates: Sequence[Candidate]) -> ModelAnswer | None:
        """Return the response to a request for the list of models, or for one of them.

        None for any other request, and while none of ``candidates`` has listed its models. Raises: ModelNotFound for a
        model that no endpoint may serve.
        """
        if self.narrower is None or (model := requested_model(head.headers.get(":method", ""), head.path)) is None:
            return None
        listed = self._listed_by(candidates)
        if listed.unknown:
            return None
        cards, anthropic = listed.cards, client_of(head).api is Api.ANTHROPIC
        if not model:
            body = listed.body(anthropic=anthropic)
        elif (card := cards.get(model)) is not None:
            body = msgspec.json.encode(anthropic_card(model, card) if anthropic else card)
        else:
            self.check(model)
            return None
        self.catalog.lists_answered += 1
        return ModelAnswer(200, body)

    def _listed_by(self, candidates: Sequence[Candidate]) -> _Listed:
        """Return the list of ``candidates``. It is cached until they or their cards change, since clients may request
        it at any rate, and making it takes tens of milliseconds in a large pool with many adapters."""
        addresses, edition = tuple([c.address for c in candidates]), self.catalog.edition
        if self._listed is None or (self._listed.addresses, self._listed.edition) != (addresses, edition):
            lists = [listed for address in addresses if (listed := self.catalog.cards(address)) is not None]
            self._listed = _Listed(addresses, edition, lists)
        return self._listed

    def understood(self, parsed: Parsed, body: bytes) -> Parsed:
        """Return ``parsed`` with the model of a ``body`` that no parser reads, if the endpoints' models differ.

        Prompts get one name for all names of the same weights, so that they share a prefix.
        """
        model = parsed.target_model
        if parsed is UNREAD and self.narrower is not None and self.catalog.served.differ and (model := _model_in(body)):
            return structs.replace(parsed, model=model, target_model=model)
        name = self.catalog.aliases.get(model, model)
        if name == model:
            return parsed
        prompts = [Prompt(of_model(prompt.identity, name), prompt.data) for prompt in parsed.prompts]
        return structs.replace(parsed, prompts=tuple(prompts))

    def ended(self, address: str, model: str, status: int | None) -> None:
        """Have the list of an endpoint read again after a response that contradicts it.

        ``address`` is where a request for ``model`` was sent, ``status`` its response's.
        """
        if self.narrower is None or not model or status is None:
            return
        listed = self.catalog.listed(address)
        if listed is not None and (status == 404 or model not in listed) and status < 500:
            self.catalog.mark_outdated(address)

    def _refusal(self, model: str) -> str:
        names = self.catalog.base_names()
        some = ", ".join(f"`{_shown(name)}`" for name in names[:MOST_NAMED])
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"The model `{_shown(model)}` does not exist. Served here: {some}{more}; GET /v1/models lists all."


_NO_ENDPOINT: frozenset[int] = frozenset()


def _model_in(body: bytes) -> str:
    """Return the model that ``body`` names, empty if it is not JSON or names none."""
    try:
        return _NAMED.decode(body).model or ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _shown(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}…"
