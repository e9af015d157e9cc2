"""Prompts as canonical bytes: equal for equal prompts, and longer for longer conversations.

Laws, all of them tested as properties:

- *Unambiguous.* Two different conversations never have the same bytes. Every field starts with one of two separators
  that no UTF-8 text contains, and a letter that identifies the field; text goes in unescaped.
- *Prefix.* A conversation continued by more messages extends the bytes of the earlier one. So what depends on the whole
  request (template, tools) comes first, and nothing follows the last message.
- *Size.* Four bytes stand for a token when no tokenizer is used, so the framing is as short as that of a chat template.

Media are represented by a digest of their URL or data, in their place: an engine caches the same image as the same
prefix. The digest is repeated until it is as long as the tokens that an engine makes of the media
(``epp.parsers.media``), so that they have the same weight in load, limits and caches as in the engine.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

import msgspec

from epp.errors import BadRequest
from epp.parsers.media import IMAGE_TOKENS, MOST_FILLED_BYTES, MOST_MEDIA, TAGGED
from epp.parsers.structure import MOST_VALUES

MESSAGE = b"\xff"
FIELD = b"\xfe"
BYTES_PER_TOKEN = 4

ABSENT = msgspec.Raw(b"")
"""The default of raw fields, for a field that was not sent."""


class Unfamiliar(Exception):
    """Raised when the prompt has content of unknown kind, and the caller gave no ``stranger`` to write in its place."""


class Rendered(NamedTuple):
    """The canonical bytes of one prompt, and the kind of prompt it is."""

    kind: bytes
    data: bytes
    more_tokens: int = 0
    """Tokens of further prompts or further media of the request, of which nothing else is known."""

    @property
    def tokens(self) -> int:
        """The number of tokens: exact for token ids, otherwise an estimate."""
        return -(-len(self.data) // BYTES_PER_TOKEN) + self.more_tokens


class Out(list["bytes | msgspec.Raw"]):
    """A prompt's bytes in pieces, with a limited number of digests of media."""

    media = 0
    _filled = _unfilled = 0  # bytes that stand for the tokens of media

    def add_media(self, tag: bytes, content: bytes | msgspec.Raw, tokens: int = 0) -> None:
        """Append a digest of media, repeated for about ``tokens`` tokens. Raises: BadRequest for too many media."""
        self.media += 1
        if self.media > MOST_MEDIA:
            raise BadRequest(
                f"the request holds too many images, files, thoughts or ids of such: at most {MOST_MEDIA:,} are read"
            )
        digest = digest_of(content)
        self.extend((FIELD, tag, digest))
        missing = tokens * BYTES_PER_TOKEN - len(FIELD) - len(tag) - len(digest)
        if missing > 0:
            self._fill(digest, missing)

    def rendered(self) -> Rendered:
        """Return the chat that was written so far."""
        return Rendered(b"chat", b"".join(self), self._unfilled // BYTES_PER_TOKEN)

    def _fill(self, digest: bytes, length: int) -> None:
        written = min(length, MOST_FILLED_BYTES - self._filled)
        self._filled += written
        self.append((digest * (-(-written // len(digest))))[:written])
        self._unfilled += length - written


class Part(msgspec.Struct, gc=False):
    """One piece of a message's content; which fields are set depends on ``type``."""

    text: str | None = None
    refusal: str | None = None
    image_url: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    audio_url: msgspec.Raw = ABSENT
    video_url: msgspec.Raw = ABSENT
    image_embeds: msgspec.Raw = ABSENT
    audio_embeds: msgspec.Raw = ABSENT
    uuid: msgspec.Raw = ABSENT
    thinking: msgspec.Raw = ABSENT
    file: msgspec.Raw = ABSENT
    file_data: msgspec.Raw = ABSENT
    file_url: msgspec.Raw = ABSENT
    file_id: msgspec.Raw = ABSENT


media_of = attrgetter("uuid", *(field for field, _, _ in TAGGED))
MEDIA = tuple((tag, tokens) for _, tag, tokens in TAGGED)
NO_MEDIA = (ABSENT,) * (1 + len(MEDIA))

MOST_PIECES = 20_000
"""Maximum number of messages and content parts in a request. Guess: ten times what the longest agents send."""
ITEMS = frozenset(("message", "function_call", "function_call_output", "reasoning"))
"""The items of a Responses request whose fields ``Message`` covers completely."""


class Message(msgspec.Struct, gc=False):
    """A chat message, or an item of a Responses request (which may have a ``type`` instead of a ``role``)."""

    role: str | None = None
    type: str | None = None
    name: str | None = None
    content: str | list[str | Part] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    audio: msgspec.Raw = ABSENT
    tools: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT
    tool_call_id: str | None = None
    arguments: str | None = None
    call_id: str | None = None
    output: msgspec.Raw = ABSENT
    summary: msgspec.Raw = ABSENT
    encrypted_content: str | None = None


def render_text(text: str) -> Rendered:
    """Return a prompt of plain text."""
    return Rendered(b"text", encoded(text))


def render_tokens(ids: Sequence[int], field: str) -> Rendered:
    """Return a prompt of token ids.

    Raises: BadRequest naming ``field`` if an id is not an unsigned 32-bit number, or if there are too many.
    """
    if len(ids) > MOST_VALUES:
        raise BadRequest(f"`{field}` holds {len(ids):,} token ids; at most {MOST_VALUES:,} are read")
    try:
        packed = array("I", ids)
    except OverflowError as error:
        raise BadRequest(f"`{field}`: a token id must lie between 0 and 4294967295: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return Rendered(b"tokens", packed.tobytes())


def apart(kind: bytes, *values: msgspec.Raw) -> bytes:
    """Return a kind of prompt specific to these values; ``kind`` itself if all are absent or null."""
    given = [raw if is_given(raw) else b"" for raw in values]
    if not any(given):
        return kind
    digest = blake2b(digest_size=16)
    for raw in given:
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return kind + digest.digest()


def render_chat(
    head: Iterable[tuple[bytes, msgspec.Raw]], messages: Sequence[Message], stranger: bytes = b""
) -> Rendered:
    """Return a conversation: first ``head``, which belongs to all of it, then its messages.

    ``stranger`` is written in place of unknown content. Raises: UnicodeDecodeError if a raw value is not UTF-8 (it
    could contain a separator). Unfamiliar if ``stranger`` is needed and empty. BadRequest if there are too many pieces.
    """
    check_pieces(messages)
    out = Out()
    for tag, raw in head:
        if raw is not ABSENT:
            add_raw(out, tag, raw)
    for message in messages:
        add_message(out, message, stranger)
    return out.rendered()


def check_pieces(messages: Sequence[Message]) -> None:
    """Check the number of messages and parts. Raises: BadRequest beyond the limit."""
    count = len(messages) + sum([len(message.content) for message in messages if type(message.content) is list])
    if count > MOST_PIECES:
        raise too_many_pieces(count)


def too_many_pieces(count: int) -> BadRequest:
    """Return the refusal of a request with ``count`` messages and parts."""
    return BadRequest(f"the request has {count:,} messages and parts of messages; at most {MOST_PIECES:,} are read")


def add_message(out: Out, message: Message, stranger: bytes) -> None:
    """Append one message. Fields are checked one by one, not in a loop: a conversation has hundreds of messages."""
    out += (MESSAGE, (message.role or message.type or "").encode())
    if message.name:
        out += (FIELD, b"n", encoded(message.name))
    if reasoning := message.reasoning or message.reasoning_content:
        out += (FIELD, b"r", encoded(reasoning))
    content = message.content
    if isinstance(content, str):
        out += (FIELD, b"c", content.encode())
    elif content is not None:
        for part in content:
            add_part(out, part, stranger)
    if message.refusal:
        out += (FIELD, b"x", encoded(message.refusal))
    if message.tool_calls is not ABSENT:
        add_raw(out, b"t", message.tool_calls)
    if message.function_call is not ABSENT:
        add_raw(out, b"f", message.function_call)
    if message.audio is not ABSENT:
        add_raw(out, b"u", message.audio)
    if message.tools is not ABSENT:
        add_raw(out, b"l", message.tools)
    if call := message.tool_call_id or message.call_id:
        out += (FIELD, b"i", encoded(call))
    if message.type:
        add_item(out, message, stranger)


def add_item(out: Out, item: Message, stranger: bytes) -> None:
    """Append the fields that only the items of a Responses request have."""
    if item.type not in ITEMS:
        add_stranger(out, stranger)
    if item.arguments:
        out += (FIELD, b"a", encoded(item.arguments))
    if item.encrypted_content:
        out += (FIELD, b"e", encoded(item.encrypted_content))
    add_raw(out, b"o", item.output)
    add_raw(out, b"s", item.summary)


def add_part(out: Out, part: str | Part, stranger: bytes) -> None:
    """Append one content part. A lone text part is the same prompt as a plain string, and gives the same bytes."""
    text = part if isinstance(part, str) else part.text
    if text is not None:
        out += (FIELD, b"c", encoded(text))
    if isinstance(part, str):
        return
    before = len(out)
    if part.refusal is not None:
        out += (FIELD, b"x", encoded(part.refusal))
    media = media_of(part)
    if media != NO_MEDIA:
        uuid, *contents = media
        named = uuid is not ABSENT and is_given(uuid)
        for (tag, tokens), raw in zip(MEDIA, contents, strict=True):
            if raw is not ABSENT and is_given(raw):
                out.add_media(tag, raw, tokens)
        if named:  # a uuid alone stands for media that the engine has seen before
            out.add_media(b"W", uuid, IMAGE_TOKENS if len(out) == before else 0)
    if text is None and len(out) == before:
        add_stranger(out, stranger)


def add_stranger(out: Out, stranger: bytes) -> None:
    """Append ``stranger`` in place of unknown content. Raises: Unfamiliar if it is empty."""
    if not stranger:
        raise Unfamiliar
    out += (FIELD, b"?", stranger)


def digest_of(raw: bytes | msgspec.Raw) -> bytes:
    """Return a digest of large or binary content, in hexadecimal letters."""
    return blake2b(raw, digest_size=16).hexdigest().encode()


def add_raw(out: Out, tag: bytes, raw: msgspec.Raw) -> None:
    """Append a JSON value as the client wrote it."""
    if is_given(raw):
        str(raw, "utf-8")  # raises UnicodeDecodeError if it is not UTF-8
        out += (FIELD, tag, raw)


def is_given(raw: msgspec.Raw) -> bool:
    """Return whether the client sent a value other than null."""
    return raw is not ABSENT and bytes(memoryview(raw)[:5]) != b"null"


def encoded(text: str) -> bytes:
    """Return the UTF-8 of any str that JSON can hold, including lone surrogates."""
    return text.encode("utf-8", "surrogatepass")
