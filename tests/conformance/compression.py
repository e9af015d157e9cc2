"""Cases: header compression. Source: RFC 7541; every error is COMPRESSION_ERROR on the connection (RFC 9113, 4.3)."""

from __future__ import annotations

import hpack

from tests.conformance.cases import Answered, Suite, connection_error
from tests.conformance.client import Client
from tests.conformance.fields import block, call, indexed, integer, message, remembered, string, table_size
from tests.conformance.frames import Code, Setting, data, headers

COMPRESSION = Suite("RFC 7541")
FAILURE = connection_error(Code.COMPRESSION_ERROR)
BLOCK = block(call())
MESSAGE = message(b"ping")


def ask(client: Client, stream: int, fields: bytes) -> None:
    """Make one call with the field block ``fields``."""
    client.send(headers(stream, fields), data(stream, MESSAGE, end=True))


def table_bytes(client: Client) -> int:
    """The server's limit of the dynamic table."""
    return client.received.settings.get(Setting.HEADER_TABLE_SIZE, 4096)


@COMPRESSION.case(FAILURE)
def an_index_beyond_both_tables_is_an_error(client: Client) -> None:
    """2.3.3 MUST: "Indices strictly greater than the sum of the lengths of both tables MUST be treated as a decoding
    error"."""
    ask(client, 1, BLOCK + indexed(62))


@COMPRESSION.case(FAILURE)
def a_name_index_beyond_both_tables_is_an_error(client: Client) -> None:
    """2.3.3 MUST: "Indices strictly greater than the sum of the lengths of both tables MUST be treated as a decoding
    error"."""
    ask(client, 1, BLOCK + integer(70, 6, 0x40) + string(b"value"))


@COMPRESSION.case(FAILURE)
def index_zero_is_an_error(client: Client) -> None:
    """6.1 MUST: "The index value of 0 is not used. It MUST be treated as a decoding error if found in an indexed header
    field representation"."""
    ask(client, 1, BLOCK + b"\x80")


@COMPRESSION.case(FAILURE)
def a_table_size_update_at_the_end_of_a_block_is_an_error(client: Client) -> None:
    """4.2 MUST: "This dynamic table size update MUST occur at the beginning of the first header block following the
    change to the dynamic table size"."""
    ask(client, 1, BLOCK + table_size(1))


@COMPRESSION.case(FAILURE)
def a_table_size_update_between_fields_is_an_error(client: Client) -> None:
    """4.2 MUST: "This dynamic table size update MUST occur at the beginning of the first header block"."""
    ask(client, 1, block(call()[:2]) + table_size(0) + block(call()[2:]))


@COMPRESSION.case(FAILURE)
def a_table_size_above_the_limit_is_an_error(client: Client) -> None:
    """6.3 MUST: "The new maximum size MUST be lower than or equal to the limit determined by the protocol using HPACK.
    A value that exceeds this limit MUST be treated as a decoding error"."""
    ask(client, 1, table_size(table_bytes(client) + 1) + BLOCK)


@COMPRESSION.case(Answered((1, 3)))
def table_size_updates_at_the_start_of_a_block_are_accepted(client: Client) -> None:
    """4.2 MUST: "at most two dynamic table size updates are sent in this case"."""
    ask(client, 1, table_size(0) + table_size(table_bytes(client)) + BLOCK)
    ask(client, 3, table_size(100) + BLOCK)


@COMPRESSION.case(FAILURE)
def a_table_size_of_zero_forgets_everything(client: Client) -> None:
    """4.3 MUST: "entries are evicted from the end of the dynamic table until the size of the dynamic table is less than
    or equal to the maximum size"."""
    ask(client, 1, BLOCK + remembered(b"kept", b"1"))
    ask(client, 3, BLOCK + indexed(62))
    assert client.reply(3).ended
    ask(client, 5, table_size(0) + table_size(100) + BLOCK + indexed(62))


@COMPRESSION.case(FAILURE)
def an_entry_larger_than_the_table_empties_it(client: Client) -> None:
    """4.4 EXAMPLE: "an attempt to add an entry larger than the maximum size causes the table to be emptied of all
    existing entries and results in an empty table"; it is not an error itself."""
    ask(client, 1, table_size(100) + BLOCK + remembered(b"kept", b"1"))
    ask(client, 3, BLOCK + remembered(b"large", b"x" * 100))
    assert client.reply(3).ended
    ask(client, 5, BLOCK + indexed(62))


@COMPRESSION.case(FAILURE)
def the_oldest_entry_is_evicted_first(client: Client) -> None:
    """4.4 EXAMPLE: "entries are evicted from the end of the dynamic table"; an entry costs 32 bytes more than its
    strings."""
    ask(client, 1, table_size(80) + BLOCK + remembered(b"old", b"12345") + remembered(b"new", b"12345"))
    ask(client, 3, BLOCK + indexed(62) + indexed(63))
    assert client.reply(3).ended
    ask(client, 5, BLOCK + remembered(b"x", b"") + indexed(62) + indexed(63) + indexed(64))


@COMPRESSION.case(FAILURE)
def huffman_padding_of_more_than_seven_bits_is_an_error(client: Client) -> None:
    """5.2 MUST: "A padding strictly longer than 7 bits MUST be treated as a decoding error"."""
    ask(client, 1, BLOCK + b"\x00\x01x" + b"\x82\x1f\xff")  # 'a' is 00011


@COMPRESSION.case(FAILURE)
def huffman_padding_with_zeros_is_an_error(client: Client) -> None:
    """5.2 MUST: "A padding not corresponding to the most significant bits of the code for the EOS symbol MUST be
    treated as a decoding error"."""
    ask(client, 1, BLOCK + b"\x00\x01x" + b"\x81\x18")


@COMPRESSION.case(FAILURE)
def the_end_of_string_symbol_in_a_string_is_an_error(client: Client) -> None:
    """5.2 MUST: "A Huffman-encoded string literal containing the EOS symbol MUST be treated as a decoding error"."""
    ask(client, 1, BLOCK + b"\x00\x01x" + b"\x84\xff\xff\xff\xff")


@COMPRESSION.case(FAILURE)
def a_string_longer_than_its_block_is_an_error(client: Client) -> None:
    """5.2 EXAMPLE: the string's octets must be there."""
    ask(client, 1, BLOCK + b"\x00\x01x\x05abc")


@COMPRESSION.case(FAILURE)
def a_block_that_ends_inside_an_integer_is_an_error(client: Client) -> None:
    """5.1 EXAMPLE: an integer ends with an octet whose most significant bit is 0."""
    ask(client, 1, BLOCK + b"\xff\x80")


@COMPRESSION.case(FAILURE)
def an_endless_integer_is_an_error(client: Client) -> None:
    """5.1 MUST: "Integer encodings that exceed implementation limits -- in value or octet length -- MUST be treated as
    decoding errors"."""
    ask(client, 1, BLOCK + b"\xff" + b"\xff" * 64 + b"\x01")


@COMPRESSION.case(FAILURE)
def a_string_of_4_gib_is_an_error(client: Client) -> None:
    """5.1 MUST: "Integer encodings that exceed implementation limits -- in value or octet length -- MUST be treated as
    decoding errors"."""
    ask(client, 1, BLOCK + b"\x00\x01x" + integer(1 << 32, 7) + b"abc")


@COMPRESSION.case(FAILURE)
def a_broken_block_in_trailers_is_an_error(client: Client) -> None:
    """4.3 MUST: RFC 9113: "A decoding error in a field block MUST be treated as a connection error of type
    COMPRESSION_ERROR"."""
    client.send(headers(1, BLOCK), headers(1, b"\x80", end=True))


@COMPRESSION.case(FAILURE)
def a_broken_block_on_a_stream_answered_early_is_an_error(client: Client) -> None:
    """4.3 MUST: RFC 9113: decompression is done "even if the frames are to be discarded"."""
    client.send(headers(1, block(call(path=b"/test.Missing/Method"))))
    client.settle()
    client.send(headers(1, b"\x80", end=True))


@COMPRESSION.case(Answered((1, 3)))
def every_literal_form_is_accepted(client: Client) -> None:
    """6.2 MUST: with, without and never indexed; names new, static and dynamic; plain and Huffman-coded strings."""
    huffman_a = b"\x81\x1f"
    forms = (
        b"\x40" + string(b"named") + string(b"1"),
        integer(62, 6, 0x40) + string(b"2"),
        b"\x00" + string(b"plain") + huffman_a,
        integer(58, 4) + string(b"agent"),
        b"\x10" + string(b"secret") + string(b"3"),
        integer(23, 4, 0x10) + string(b"token"),
        b"\x40" + huffman_a + huffman_a,
        indexed(62) + indexed(63) + indexed(64),
        b"\x00" + string(b"empty") + b"\x80",
    )
    ask(client, 1, BLOCK + b"".join(forms))
    ask(client, 3, BLOCK + indexed(62))


@COMPRESSION.case(Answered(tuple(range(1, 120, 2))))
def a_compressing_client_is_understood_over_many_requests(client: Client) -> None:
    """2.2 EXAMPLE: both ends keep the dynamic table in step through insertions and evictions."""
    encoder = hpack.Encoder()
    for stream in range(1, 120, 2):
        custom = [(b"x-request-id", b"%032d" % stream), (b"x-%d" % (stream % 7), b"v" * stream)]
        fields = [(name.decode(), value.decode()) for name, value in call(*custom)]
        ask(client, stream, encoder.encode(fields, huffman=stream % 4 == 1))


@COMPRESSION.case(Answered((1, 3)))
def the_table_is_kept_between_field_blocks_of_all_streams(client: Client) -> None:
    """2.2 MUST: trailers and requests share one table for the direction."""
    client.send(headers(1, BLOCK + remembered(b"first", b"1")), data(1, MESSAGE))
    client.send(headers(1, indexed(62) + remembered(b"second", b"2"), end=True))
    ask(client, 3, BLOCK + indexed(62) + indexed(63))
