"""`ckpt verify` against scripts that compute the same checksums over the same files."""

from __future__ import annotations

from files import Files
from measure import CKPT, Section, in_turn, python

_SUM = """
import sys
{setup}
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(1 << 22):
        {update}
"""
_CRC32 = _SUM.format(setup="import zlib; total = 0", update="total = zlib.crc32(chunk, total)")
_CRC32C = _SUM.format(setup="import crc32c; total = 0", update="total = crc32c.crc32c(chunk, total)")
_SHA256 = _SUM.format(setup="import hashlib; total = hashlib.sha256()", update="total.update(chunk)")

#: Links to one file: the bytes are in the page cache, so that cores are what is measured.
_COPIES = 8


def measure(files: Files) -> Section:
    """The table for verification."""
    section = Section(
        "Verification",
        f"`ckpt verify` of {files.nbytes >> 20} MiB, beside a script that runs the same checksum over the file."
        " Best of runs in turn.",
    )
    pth = files.pth()
    bundle = files.tf()
    data = bundle.with_name("large-tf.data-00000-of-00001")
    manifest = files.manifest(pth)
    with_manifest = (*CKPT, "verify", str(pth), "--manifest", str(manifest))
    for label, ours, theirs, most in (
        ("integrity of a .pth / zlib.crc32", (*CKPT, "verify", str(pth)), python(_CRC32, pth), 1.5),
        ("integrity of a TensorFlow bundle / crc32c", (*CKPT, "verify", str(bundle)), python(_CRC32C, data), 2),
        ("a .pth with a manifest / hashlib.sha256", with_manifest, python(_SHA256, pth), 1.5),
    ):
        runs = in_turn({"ours": ours, "theirs": theirs})
        section.ratio(label, runs["ours"].best, runs["theirs"].best, at_most=most)
        section.memory(f"{label.split(' / ')[0]}, peak memory", runs["ours"].peak_nbytes, at_most_mib=150)
    links = files.links(pth, _COPIES)
    runs = in_turn({n: (*CKPT, "verify", "-j", n, *map(str, links)) for n in ("1", "2")}, runs=3)
    section.ratio(f"{_COPIES} files with -j 2, -j 1", runs["2"].best, runs["1"].best, at_least=1.6)
    return section
