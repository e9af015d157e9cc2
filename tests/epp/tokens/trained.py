"""Small tokenizers with chat templates, trained here: of the kinds of the most served models, and of rare kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NUMBERS, EAST_ASIAN = r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}{%- for tool in tools %}{{- tool | tojson }}\n{% endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}"
    "{{- message.content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '<tool_call>' + call.function.name + (call.function.arguments | tojson) + '</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
"""A template like Qwen's, with texts as contents."""
HEADERS = (
    "{{- bos_token }}{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{%- if message['content'] is string %}{{- message['content'] | trim }}{%- else %}"
    "{%- for part in message['content'] %}{{- part['text'] }}{%- endfor %}{%- endif %}"
    "{{- '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
"""A template like Llama 3's, with lists of parts as contents, and with the first token."""

WORDS = (
    "the cache of a prefix holds what an engine has computed before , and a router that knows it sends requests there "
    "\n\n def schedule ( self , request ) : return max ( scores ) # 1234567 It's WE'RE naïve façade Ünïcödé 漢字 かな "
)


def text(words: int, seed: int = 0) -> str:
    """Return text that is tokenized into something other than bytes."""
    vocabulary = WORDS.split(" ")
    return " ".join(vocabulary[(seed + i * i * 7 + i) % len(vocabulary)] for i in range(words))


def save(
    folder: Path,
    tokenizer: Tokenizer,
    special: Sequence[str | AddedToken],
    vocabulary: int = 600,
    template: str | None = CHATML,
    **config: Any,
) -> Path:
    """Train ``tokenizer``, and write the files of a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text(400, seed) for seed in range(5)], trainer)
    if config.pop("begins", False):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{config['bos_token']} $A",
            special_tokens=[(config["bos_token"], tokenizer.token_to_id(config["bos_token"]))],
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **config}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def byte_level(*stages: Any, normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if stages:
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*stages, last])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def chatml(folder: Path) -> Path:
    """Make a tokenizer as Qwen's."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return save(
        folder, byte_level(split(CL100K.replace("{1,3}", "")), normalizer=normalizers.NFC()), special,
        eos_token="<|im_end|>", pad_token="<|endoftext|>",
    )  # fmt: skip


def headers(folder: Path) -> Path:
    """Make a tokenizer as Llama 3's."""
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return save(
        folder, byte_level(split(CL100K)), special, template=HEADERS,
        bos_token="<|begin_of_text|>", eos_token="<|eot_id|>", begins=True,
    )  # fmt: skip


def gpt2(folder: Path) -> Path:
    """Make a tokenizer as GPT-2's, without chats."""
    return save(folder, byte_level(), ["<|endoftext|>"], template=None, eos_token="<|endoftext|>")


def o200k(folder: Path) -> Path:
    return save(folder, byte_level(split(O200K)), ["<|im_start|>", "<|im_end|>"])


def deepseek(folder: Path) -> Path:
    """Make a tokenizer with three expressions in turn, and a token that takes the whitespace on its left."""
    special = ["<|im_start|>", AddedToken("<mask>", lstrip=True), AddedToken("<|im_end|>", rstrip=True)]
    return save(folder, byte_level(split(NUMBERS), split(EAST_ASIAN), split(DEEPSEEK)), special)


def awkward(folder: Path) -> Path:
    """Make a tokenizer whose added tokens overlap, have spaces, are whole words, or are matched in normalized text."""
    special = [
        AddedToken("<a><b>"), AddedToken("<b><c>"), AddedToken("<b>"), AddedToken("the cache"),
        AddedToken("<|im_end|>"), AddedToken("router", single_word=True), AddedToken("éngine", normalized=True),
    ]  # fmt: skip
    return save(folder, byte_level(split(CL100K), normalizer=normalizers.NFC()), special)


def sentencepiece(folder: Path) -> Path:
    """Make a tokenizer as Llama 2's: spaces are letters, and one is put in front."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return save(folder, tokenizer, ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"], bos_token="<s>", begins=True)


def metaspace(folder: Path) -> Path:
    """Make a tokenizer as Mistral's: a space is put in front of the first text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return save(folder, tokenizer, ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"])


KINDS = {kind.__name__: kind for kind in (chatml, headers, gpt2, o200k, deepseek, awkward, sentencepiece, metaspace)}
