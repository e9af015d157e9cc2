"""A tokenizer for the models of ``model.py``, so that a server can take text and chats.

It is a byte-pair encoding, trained on the given texts. Every token stands for readable text, so that random weights
generate something that a client can show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CHAT = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def make_tokenizer(folder: Path, text: Iterable[str], vocabulary: int) -> Path:
    """Write a tokenizer of at most ``vocabulary`` tokens to ``folder``; equal texts result in equal tokenizers."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False, min_frequency=1
        ),
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": CHAT,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
