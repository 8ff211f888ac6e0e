"""Large files for the benchmarks, written by the frameworks themselves, each once."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from measure import once, python

_TORCH = """
import sys, torch
path, count, numel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
torch.save({f"layer{i}.weight": torch.randn(numel) for i in range(count)}, path)
"""
_TORCH_MOVED = """
import sys, torch
source, path = sys.argv[1:]
state = torch.load(source, mmap=True)
torch.save({name: tensor + 0.01 * torch.randn_like(tensor) for name, tensor in state.items()}, path)
"""
_TORCH_NAMED = """
import sys, torch
path, count, prefix, block, layer = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
names = [
    f"{prefix}encoder.{block}.{i}.{layer}{j}.{part}"
    for i in range(count // 40 + 1) for j in range(20) for part in ("weight", "bias")
]
torch.save({name: torch.zeros(2) for name in names[:count]}, path)
"""
_PADDLE = """
import sys, paddle
path, count, numel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
state = {f"layer{i}.weight": paddle.randn([numel]) for i in range(count)}
paddle.save({"epoch": 1, "iteration": 10, "main_params": state}, path)
"""
_PADDLE_LINEAR = """
import sys, paddle
path, count, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
layers = paddle.nn.Sequential(*[paddle.nn.Linear(side, side) for _ in range(count)])
paddle.save(layers.state_dict(), path)
"""
_TF = """
import sys, tensorflow as tf
path, count, numel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = [f"layer{i}/kernel" for i in range(count)]
tf.raw_ops.SaveV2(prefix=path, tensor_names=names, shape_and_slices=[""] * count,
                  tensors=[tf.random.normal([numel]) for _ in range(count)])
"""
_SAFETENSORS = """
import sys, torch
from safetensors.torch import save_file
path, count, numel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
save_file({f"layer{i}.weight": torch.randn(numel) for i in range(count)}, path)
"""
_MANIFEST = """
import subprocess, sys
with open(sys.argv[2], "wb") as file:
    subprocess.run([sys.executable, "-m", "ckpt_tools", "ls", "--json", "--digest", sys.argv[1]], stdout=file, check=True)
"""


@dataclass(frozen=True)
class Files:
    """Where the files are, and how large: ``count`` tensors of ``numel`` float32 values; ``many`` tiny ones."""

    folder: Path
    count: int
    numel: int
    many: int

    @property
    def small(self) -> bool:
        """Whether these only show that the benchmarks still run."""
        return self.many < 1000

    @property
    def nbytes(self) -> int:
        return self.count * self.numel * 4

    def _made(self, name: str, code: str, count: int, numel: int, made: str | None = None) -> Path:
        path = self.folder / name
        if not (self.folder / (made or name)).exists():
            once(python(code, path, count, numel))
        return path

    def pth(self) -> Path:
        return self._made("large.pth", _TORCH, self.count, self.numel)

    def pdz(self) -> Path:
        return self._made("large.pdz", _PADDLE, self.count, self.numel)

    def linear_layers(self, count: int, side: int) -> Path:
        """Square weights and their biases, as Paddle saves them with its own names for the parameters."""
        return self._made(f"linear-{count}-{side}.pdparams", _PADDLE_LINEAR, count, side)

    def tf(self) -> Path:
        return self._made("large-tf", _TF, self.count, self.numel, "large-tf.index")

    def safetensors(self) -> Path:
        return self._made("large.safetensors", _SAFETENSORS, self.count, self.numel)

    def manifest(self, path: Path) -> Path:
        """What ``ckpt ls --json --digest`` says of a file."""
        made = path.with_name(path.name + ".manifest.json")
        if not made.exists():
            once(python(_MANIFEST, path, made))
        return made

    def links(self, path: Path, count: int) -> list[Path]:
        """Names of one file."""
        names = [path.with_name(f"{path.stem}-{i}{path.suffix}") for i in range(count)]
        for name in names:
            if not name.exists():
                name.hardlink_to(path)
        return names

    def copy(self, path: Path) -> Path:
        """The same bytes in a file of their own."""
        copied = path.with_name(f"{path.stem}-copy{path.suffix}")
        if not copied.exists():
            shutil.copyfile(path, copied)
        return copied

    def moved_pth(self) -> Path:
        """As large as :meth:`pth`, with every value another one."""
        path = self.folder / "moved.pth"
        if not path.exists():
            once(python(_TORCH_MOVED, self.pth(), path))
        return path

    def named_pth(self, name: str, prefix: str, block: str, layer: str) -> Path:
        """Many tiny tensors with nested names."""
        path = self.folder / f"{name}.pth"
        if not path.exists():
            once(python(_TORCH_NAMED, path, self.many, prefix, block, layer))
        return path

    def many_pth(self, count: int | None = None) -> Path:
        """Small tensors; as many as the benchmarks have, or ``count`` where that is fewer."""
        count = self.many if count is None else min(count, self.many)
        return self._made(f"many-{count}.pth", _TORCH, count, 2)
