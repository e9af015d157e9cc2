"""The tokenizer of one model: text in, token ids out, without a socket or a clock."""
