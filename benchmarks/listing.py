"""`ckpt ls` against an empty command line program, and against the frameworks doing the same."""

from __future__ import annotations

from files import Files
from measure import CKPT, Section, in_turn, python

_EMPTY = "import typer, rich.console, rich.table"
_TORCH = """
import sys, torch
for name, t in torch.load(sys.argv[1], mmap=True, map_location="cpu").items():
    print(name, t.dtype, tuple(t.shape))
"""
_PADDLE = """
import sys, paddle
for part, state in paddle.load(sys.argv[1]).items():
    for name, t in (state.items() if isinstance(state, dict) else ()):
        print(part, name, t.dtype, t.shape)
"""
_TF = """
import sys, tensorflow as tf
for name, shape in tf.train.list_variables(sys.argv[1]):
    print(name, shape)
"""
_SHA256 = """
import hashlib, sys
total = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(1 << 22):
        total.update(chunk)
"""


def measure(files: Files) -> Section:
    """The table for listing."""
    section = Section(
        "Listing",
        f"`ckpt ls` of {files.count} tensors in {files.nbytes >> 20} MiB, piped, beside `python -c '{_EMPTY}'`, an empty"
        " program with the same two libraries, and beside the framework's own way to print the names. Medians of runs in turn.",
    )
    for label, path, framework in (
        (".pth", files.pth(), _TORCH),
        (".pdz", files.pdz(), _PADDLE),
        ("TensorFlow bundle", files.tf(), _TF),
    ):
        runs = in_turn(
            {"ckpt": (*CKPT, "ls", str(path)), "empty": python(_EMPTY), "framework": python(framework, path)}
        )
        section.ratio(f"ls {label} / empty program", runs["ckpt"].middle, runs["empty"].middle, at_most=1.5)
        section.ratio(
            f"ls {label}, framework doing the same", runs["ckpt"].middle, runs["framework"].middle, at_least=9
        )
        section.memory(f"ls {label}, peak memory", runs["ckpt"].peak_nbytes, at_most_mib=45)
    many = files.many_pth()
    runs = in_turn({"ckpt": (*CKPT, "ls", str(many)), "torch": python(_TORCH, many)}, runs=3)
    section.ratio(
        f"ls of a .pth with {files.many:,} tensors, torch.load(mmap=True)",
        runs["ckpt"].middle,
        runs["torch"].middle,
        at_least=4,
    )
    for label, path, data in (
        (".pth", files.pth(), files.pth()),
        (".pdz", files.pdz(), files.pdz()),
        ("TensorFlow bundle", files.tf(), files.tf().with_name("large-tf.data-00000-of-00001")),
    ):
        runs = in_turn(
            {
                "digest": (*CKPT, "ls", "--digest", str(path)),
                "sha256": python(_SHA256, data),
                "stats": (*CKPT, "ls", "--stats", str(path)),
            },
            runs=3,
        )
        section.ratio(
            f"ls --digest {label} / hashlib.sha256 over the file", runs["digest"].best, runs["sha256"].best, at_most=2
        )
        section.memory(f"ls --digest {label}, peak memory", runs["digest"].peak_nbytes, at_most_mib=150)
        section.memory(f"ls --stats {label}, peak memory", runs["stats"].peak_nbytes, at_most_mib=150)
    return section
