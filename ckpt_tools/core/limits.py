"""Bounds on what a file may ask for, each with its reason. Honest files stay far below all of them."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Limits:
    """Bounds for reading one checkpoint."""

    #: A pickle that describes tensors (not the tensors): 100,000 tensors need about 15 MiB.
    pickle_nbytes: int = 1024 * MIB
    #: JSON headers and indexes: safetensors itself stops at 100 MB.
    header_nbytes: int = 100_000_000
    #: Decimal integers and LONG4 of a pickle; more digits than any counter, seed or hash has.
    integer_nbytes: int = 4 * KIB
    #: A line of a text opcode (protocol 0): the longest honest ones are strings.
    line_nbytes: int = 16 * MIB
    #: Values a pickle keeps on its stack: picklers write containers in batches of 1000, tuples at once.
    stack: int = 2_000_000
    #: The deepest nesting of containers that is followed; real checkpoints stay below 40.
    depth: int = 1000
    #: Tuples used as dict keys nest this deep at most: hashing recurses in C.
    key_depth: int = 16
    #: A tree is visited at most this many times its own size: aliased dicts double, memo bombs explode.
    visits_per_node: int = 8
    visits_at_least: int = 100_000
    #: The keys of all leaves together; a million leaves with keys of 250 bytes.
    keys_nbytes: int = 256 * MIB
    #: A stride-0 view may be this many times larger than the storage behind it when its values are asked for.
    expansion: int = 1024
    expansion_at_least: int = 256 * MIB
    #: A compressed file may unpack to this many times its size: weights shrink by a tenth, tables of zeros a hundredfold.
    unpacked_ratio: int = 200
    unpacked_at_least: int = 256 * MIB
    #: Dimensions of one tensor: torch stops at 64, numpy 2 at 64.
    rank: int = 64
    #: Bytes of values held at once when tensors are streamed.
    chunk_nbytes: int = 4 * MIB
    #: Members of one archive.
    members: int = 4_000_000


DEFAULT_LIMITS = Limits()
#: What readers hand out at a time when nobody asks for less or more.
CHUNK_NBYTES = DEFAULT_LIMITS.chunk_nbytes
