"""A tokenizer built from its model's folder, which encodes texts. The only user of ``tokenizers``.

Source: ``tokenizer.json`` and ``tokenizer_config.json`` as the transformers library reads them for vLLM 0.32. Special
tokens that only the second file names are added. Its ``add_bos_token`` or ``add_eos_token`` determine what is put
around a text; without them, the first file does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from tokenizers import AddedToken as Token
from tokenizers import Tokenizer

from epp.errors import ConfigError
from epp.tokens.model.cuts import AddedToken, Cuts, Described
from epp.tokens.model.packing import packed
from epp.tokens.model.tokenizer_config import TokenizerConfig

PROBE = "a"


class Vocabulary:
    """Encodes texts with one tokenizer. Any thread may call it; the library does not hold Python's lock meanwhile."""

    def __init__(self, file: Path, config: TokenizerConfig) -> None:
        """Load the tokenizer from ``file``. Raises: ConfigError naming ``file``."""
        try:
            described = msgspec.json.decode(file.read_bytes(), type=Described)
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise ConfigError(f"{file}: no tokenizer of the tokenizers library: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        known = {token.content for token in described.added_tokens}
        more = config.missing_from(known)
        if more:
            tokenizer.add_tokens([_library(token) for token in more])
        self._tokenizer = tokenizer
        normalizer = tokenizer.normalizer
        self.cuts = Cuts(
            msgspec.structs.replace(described, added_tokens=(*described.added_tokens, *more)),
            normalizer.normalize_str if normalizer is not None else str,
        )
        """Where a text may be cut before it is encoded."""
        self.before, self.after = self._around(config)
        """The token ids put before and after a text that gets special tokens."""

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return the token ids of each text, without the special tokens around it.

        The texts are encoded one after the other. The library releases Python's lock for each text, so that the event
        loop gets its turn in between, and uses one core. (A batch is spread over all cores, and delays the loop twice
        as long.)
        """
        encode = self._tokenizer.encode_batch_fast
        return [packed(encode([text], add_special_tokens=False)[0].ids) for text in texts]

    def _around(self, config: TokenizerConfig) -> tuple[bytes, bytes]:
        if config.says_what_is_around:
            before, after = config.around
            return self._named(before), self._named(after)
        encoded = self._tokenizer.encode(PROBE, add_special_tokens=True)
        mask = encoded.special_tokens_mask
        first = mask.index(0) if 0 in mask else len(mask)
        last = len(mask) - mask[::-1].index(0) if 0 in mask else len(mask)
        return packed(encoded.ids[:first]), packed(encoded.ids[last:])

    def _named(self, token: str | None) -> bytes:
        number = self._tokenizer.token_to_id(token) if token is not None else None
        return b"" if number is None else packed([number])


def _library(token: AddedToken) -> Token:
    return Token(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )
