"""`ckpt convert` against `cp` with a sync and the checksums, and against the scripts that people use."""

from __future__ import annotations

from pathlib import Path

from files import Files
from measure import CKPT, Section, in_turn, python

_COPY = """
import os, shutil, subprocess, sys, zlib, crc32c
source, target, kind = sys.argv[1:]
subprocess.run(["cp", source, target], check=True)
with open(target, "rb+") as file:
    os.fsync(file.fileno())
update = {"crc32": zlib.crc32, "crc32c": crc32c.crc32c}[kind]
value = 0
with open(source, "rb") as file:
    while chunk := file.read(1 << 22):
        value = update(chunk, value)
"""
_PDZ_TO_PTH = """
import sys, paddle, torch
def moved(node):
    if isinstance(node, dict):
        return {key: moved(value) for key, value in node.items()}
    return torch.from_numpy(node.numpy()) if isinstance(node, paddle.Tensor) else node
torch.save(moved(paddle.load(sys.argv[1])), sys.argv[2])
"""
_PTH_TO_SAFETENSORS = """
import sys, torch
from safetensors.torch import save_file
save_file(torch.load(sys.argv[1], map_location="cpu"), sys.argv[2])
"""
_TF_TO_SAFETENSORS = """
import sys, tensorflow as tf
from safetensors.numpy import save_file
reader = tf.train.load_checkpoint(sys.argv[1])
save_file({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}, sys.argv[2])
"""
_TORCH_AGAIN = """
import sys, torch
torch.save(torch.load(sys.argv[1]), sys.argv[2])
"""


def measure(files: Files) -> Section:
    """The table for converting."""
    section = Section(
        "Converting",
        f"`ckpt convert --no-check` of {files.nbytes >> 20} MiB, beside `cp` and a sync of the same bytes plus the checksums"
        " that source and target carry, and beside the script that people write for it. Best of runs in turn.",
    )
    folder = files.folder
    rows = (
        (".pdz → .pth", files.pdz(), files.pdz(), "out.pth", "crc32", _PDZ_TO_PTH),
        (".pth → .safetensors", files.pth(), files.pth(), "out.safetensors", "crc32", _PTH_TO_SAFETENSORS),
        (
            "TensorFlow bundle → .safetensors",
            files.tf(),
            Path(f"{files.tf()}.data-00000-of-00001"),
            "out2.safetensors",
            "crc32c",
            _TF_TO_SAFETENSORS,
        ),
    )
    for label, source, data, name, checksum, script in rows:
        made = {"ckpt": folder / name, "copy": folder / "copy", "script": folder / f"script-{name}"}
        runs = in_turn(
            {
                "ckpt": (*CKPT, "convert", str(source), str(made["ckpt"]), "--no-check", "--quiet"),
                "copy": python(_COPY, data, made["copy"], checksum),
                "script": python(script, source, made["script"]),
            },
            made=made,
        )
        section.ratio(f"{label} / cp, sync and checksums", runs["ckpt"].best, runs["copy"].best, at_most=1.5)
        section.ratio(f"{label}, a script doing the same", runs["ckpt"].best, runs["script"].best, at_least=3)
        section.memory(f"{label}, peak memory", runs["ckpt"].peak_nbytes, at_most_mib=200)
    many = files.many_pth(50_000)
    made = {"ckpt": folder / "many-out.pth", "torch": folder / "many-script.pth"}
    runs = in_turn(
        {
            "ckpt": (*CKPT, "convert", str(many), str(made["ckpt"]), "--quiet"),
            "torch": python(_TORCH_AGAIN, many, made["torch"]),
        },
        runs=3,
        made=made,
    )
    section.ratio(
        ".pth → .pth of 50,000 small tensors, read back, torch.load and torch.save",
        runs["ckpt"].best,
        runs["torch"].best,
        at_least=1,
    )
    return section
