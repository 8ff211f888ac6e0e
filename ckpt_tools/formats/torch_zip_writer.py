"""Writes ``torch-zip``: an archive that ``torch.load`` takes under ``weights_only=True``, mapped or with computed offsets.

Layout as torch/serialization.py and caffe2/serialize/inline_container.cc have it. Storages are numbered in the order in
which ``data.pkl`` first refers to them. Tensors that look at the same bytes go on sharing them; of a storage only what
some tensor looks at is written.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.formats._shard_index_writer import index_file, plan_of, set_path, shard_path, state_dict_runs
from ckpt_tools.formats._torch_pickle import Pickled, assembled, reason_lost, remark
from ckpt_tools.formats._writing import Feed, Output, PlannedFile, Request, Target, WritePlan
from ckpt_tools.formats._zip_writer import ALIGNMENT, Layout

TARGET = Target("a PyTorch file", reason_lost, keeps_sharing=True, nests=True, keeps_attributes=True, remark=remark)

#: torch names the root folder after the file; a fixed one keeps the bytes the same whatever the file is called.
_ROOT = "archive"
_VERSION = b"3\n"
_FORMAT_VERSION = b"1"


def plan(root: Node, request: Request) -> WritePlan:
    """The archive of a tree; or several and their index, when it is a flat state dict larger than a shard may be."""
    runs = [] if request.max_shard_nbytes is None else state_dict_runs(root, request)
    if len(runs) <= 1:
        pickled = assembled(root)
        return plan_of(request.path, [_archive(pickled, request.path)], pickled.notes)
    kind = root.type_name if isinstance(root, Dict) else "dict"
    parts = [assembled(Dict(run, type_name=kind)) for run in runs]
    path = set_path(request.path, ".pth")
    files = [_archive(part, shard_path(path, n, len(runs))) for n, part in enumerate(parts, 1)]
    files.append(index_file(path, runs))
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    return plan_of(path, files, notes)


def _archive(pickled: Pickled, path: Path) -> PlannedFile:
    small = [
        ("data.pkl", pickled.pickle),
        (".format_version", _FORMAT_VERSION),
        (".storage_alignment", str(ALIGNMENT).encode("ascii")),
        ("byteorder", b"little"),
    ]
    names = [name for name, _ in small] + [f"data/{i}" for i in range(len(pickled.storages))] + ["version"]
    last = [("version", _VERSION), (".data/serialization_id", _identity(names, pickled.pickle))]
    members = [
        *((f"{_ROOT}/{name}", len(data)) for name, data in small),
        *((f"{_ROOT}/data/{i}", values.info.nbytes) for i, values in enumerate(pickled.storages)),
        *((f"{_ROOT}/{name}", len(data)) for name, data in last),
    ]
    layout = Layout(members)

    def write(output: Output, feed: Feed) -> None:
        def kept(data: bytes) -> list[bytes]:
            return [data] if data else []

        layout.write(
            output,
            [
                *(partial(kept, data) for _, data in small),
                *(partial(feed, values) for values in pickled.storages),
                *(partial(kept, data) for _, data in last),
            ],
        )

    return PlannedFile(path, layout.nbytes, write)


def _identity(names: list[str], pickle: bytes) -> bytes:
    """The serialization id: two numbers of twenty digits, of the names and of the content. torch reads any."""
    digests = hashlib.sha256("\n".join(names).encode()).digest(), hashlib.sha256(pickle).digest()
    return "".join(f"{int.from_bytes(digest[:8], 'little'):020d}" for digest in digests).encode("ascii")
