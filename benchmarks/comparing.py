"""`ckpt diff` against `ckpt ls`, `cmp`, and torch and paddle scripts that do the same."""

from __future__ import annotations

from files import Files
from measure import CKPT, Section, in_turn, python

_TORCH = """
import sys, torch
a, b = (torch.load(path, mmap=True) for path in sys.argv[1:])
for name in a:
    same = torch.equal(a[name], b[name])
    if not same:
        print(name, float((a[name] - b[name]).abs().max()), float((a[name] - b[name]).norm() / a[name].norm()))
"""
_PADDLE = """
import sys, paddle
a, b = (paddle.load(path)["main_params"] for path in sys.argv[1:])
for name in a:
    if not bool((a[name] == b[name]).all()):
        print(name, float((a[name] - b[name]).abs().max()))
"""


def measure(files: Files) -> Section:
    """The table for comparison."""
    section = Section(
        "Comparison",
        f"`ckpt diff` of two files of {files.nbytes >> 20} MiB, beside `ckpt ls` of one of them, `cmp`, and scripts of the"
        " frameworks. Best of runs in turn.",
    )
    pth, moved = files.pth(), files.moved_pth()
    copy = files.copy(pth)
    runs = in_turn({"diff": (*CKPT, "diff", str(pth), str(moved)), "ls": (*CKPT, "ls", str(pth))})
    section.ratio("structure of two .pth / ls of one", runs["diff"].best, runs["ls"].best, at_most=2)
    runs = in_turn(
        {
            "cmp": ("cmp", str(pth), str(copy)),
            "equal": (*CKPT, "diff", "--values", str(pth), str(copy)),
            "moved": (*CKPT, "diff", "--values", str(pth), str(moved)),
            "torch": python(_TORCH, pth, moved),
        }
    )
    section.ratio("values of equal .pth / cmp", runs["equal"].best, runs["cmp"].best, at_most=2.5)
    section.ratio("values that all differ / cmp of as many bytes", runs["moved"].best, runs["cmp"].best, at_most=8)
    section.ratio("values that all differ, torch script", runs["moved"].best, runs["torch"].best, at_least=1)
    section.memory("values, peak memory", max(runs["equal"].peak_nbytes, runs["moved"].peak_nbytes), at_most_mib=200)
    pdz = files.pdz()
    runs = in_turn(
        {
            "ours": (*CKPT, "diff", "--values", str(pdz), str(files.copy(pdz))),
            "paddle": python(_PADDLE, pdz, files.copy(pdz)),
        },
        runs=3,
    )
    section.ratio("values of equal .pdz, paddle script", runs["ours"].best, runs["paddle"].best, at_least=1)
    plain = files.named_pth("named", "", "layers", "norm")
    renamed = files.named_pth("renamed", "model.", "blocks", "ln")
    runs = in_turn({"diff": (*CKPT, "diff", str(plain), str(renamed)), "ls": (*CKPT, "ls", str(plain))}, runs=3)
    section.ratio(
        f"{files.many:,} names, all renamed (prefix and two segments) / ls of one",
        runs["diff"].best,
        runs["ls"].best,
        at_most=10,
    )
    return section
