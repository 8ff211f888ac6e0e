"""Every code a finding of ``verify`` may have, with what to do about it where the finding itself knows nothing better.

The codes are stable: policies, baselines and reports refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_RESTORE = "restore the file from where it was written, or take an earlier checkpoint"
_COPY = "copy or download all files of the checkpoint again"
_UNTRUSTED = "do not load it; ask whoever made it for safetensors or plain weights"
_ALLOW = 'if you trust it, allow the name in a policy: allow = ["package.module.*"]'
_MANIFEST = "keep a manifest when you write one: ckpt ls CHECKPOINT --json --digest > FILE"
_SAVE_AGAIN = "save it again with the framework that wrote it"
_COMPARE = "ckpt diff CHECKPOINT EXPECTED tells more of the differences"
_CONFIGURE = "compare the model's arguments (--kwargs) with those of the training; ckpt diff tells more"
_SAVED_BADLY = "take an earlier checkpoint, or look at its values: ckpt show CHECKPOINT NAME"
_OPTIMIZER = "resume with the optimizer of this model, or without one"
_PATHS = "ckpt fix-paths DIRECTORY --dry-run shows what can be repaired"

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "integrity-checksum": _RESTORE,
        "integrity-chunks": _COPY,
        "integrity-damaged": _RESTORE,
        "integrity-damaged-item": _RESTORE,
        "integrity-damaged-member": _RESTORE,
        "integrity-damaged-shard": _COPY,
        "integrity-data-file": _COPY,
        "integrity-duplicate-member": _UNTRUSTED,
        "integrity-gap": _SAVE_AGAIN,
        "integrity-left-out": "verify these files by a manifest of their own",
        "integrity-limit": "it asks for far more than checkpoints do: do not load it unless you made it",
        "integrity-missing-bytes": _COPY,
        "integrity-missing-key": _COPY,
        "integrity-missing-part": _COPY,
        "integrity-missing-shard": _COPY,
        "integrity-missing-tensor": _COPY,
        "integrity-missing-variable": _COPY,
        "integrity-name-table": _SAVE_AGAIN,
        "integrity-no-checksum": _SAVE_AGAIN,
        "integrity-no-checksums": _MANIFEST,
        "integrity-no-names": "keep the program (.pdmodel or .json) beside it",
        "integrity-object-graph": _COPY,
        "integrity-outline": "convert the source again with this version",
        "integrity-overlap": _UNTRUSTED,
        "integrity-program-damaged": _COPY,
        "integrity-program-mismatch": "put the program beside it that was exported with it",
        "integrity-repeated-tensor": "make the index and its files again; they come from different saves",
        "integrity-several-saves": "name one of them, or move the others away",
        "integrity-short-data": _COPY,
        "integrity-slices": _COPY,
        "integrity-stray-file": "move it out of the directory",
        "integrity-stray-member": _SAVE_AGAIN,
        "integrity-stray-slice": _COPY,
        "integrity-structured-names": _COPY,
        "integrity-trailing-bytes": "find out who appended them; frameworks write none",
        "integrity-unindexed-tensor": "make the index and its files again; they come from different saves",
        "integrity-unknown-dtype": "a newer ckpt may know it: pip install -U ckpt-tools",
        "integrity-unreadable": "fetch it again, or leave it out; ckpt formats lists what can be read",
        "safety-call": _UNTRUSTED,
        "safety-class": _ALLOW,
        "safety-name": _ALLOW,
        "safety-readers-disagree": _UNTRUSTED,
        "safety-torchscript-code": "load it only if you trust who made it; ckpt convert takes the weights out",
        "safety-unread-pickle": _SAVE_AGAIN,
        "safety-weights-only": "ckpt convert takes the weights out",
        "values-all-zero": _SAVED_BADLY,
        "values-constant": _SAVED_BADLY,
        "values-denormal": "flush them to zero when training: torch.set_flush_denormal(True)",
        "values-not-measured": _SAVED_BADLY,
        "values-not-finite": _SAVED_BADLY,
        "expect-ambiguous": _CONFIGURE,
        "expect-digest": _COMPARE,
        "expect-dtype": _COMPARE,
        "expect-missing": _COMPARE,
        "expect-missing-checkpoint": "if it was deleted on purpose, make the manifest again",
        "expect-model": _CONFIGURE,
        "expect-names": _CONFIGURE,
        "expect-no-digests": "make it with: ckpt ls CHECKPOINT --json --digest > FILE",
        "expect-no-entry": "make a manifest of it: ckpt ls CHECKPOINT --json --digest > FILE",
        "expect-required": "ckpt ls CHECKPOINT lists the names that are there",
        "expect-shape": _COMPARE,
        "expect-size": "leave out what is not needed: ckpt convert CHECKPOINT NEW --weights-only",
        "expect-unexpected": _COMPARE,
        "expect-value": "if it changed on purpose, make the manifest again",
        "paths-ambiguous": _PATHS,
        "paths-damaged": _PATHS,
        "paths-duplicate": _PATHS,
        "paths-elsewhere": _PATHS,
        "paths-mismatch": _PATHS,
        "paths-missing": _PATHS,
        "paths-moved": _PATHS,
        "paths-note": _PATHS,
        "paths-outside": _PATHS,
        "resume-iteration-mismatch": "resume from a checkpoint whose name, content and record agree",
        "resume-no-optimizer": "if the trainer saves one elsewhere, give it that file too",
        "resume-no-tensors": "resume from a checkpoint that holds weights",
        "resume-optimizer-lost": "resume from an earlier checkpoint, or accept a new optimizer",
        "resume-optimizer-mismatch": _OPTIMIZER,
        "resume-path-level": "make a link where the trainer looks, or move the directory there",
        "resume-save-counter": "name it by its step if the trainer reads the step from the name",
        "resume-statistics-ahead": "ckpt truncate-stats drops the records that are ahead",
        "resume-unfinished-save": "delete it once no training writes there any more",
    }
)
