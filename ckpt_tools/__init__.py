"""Read, compare, convert, repair and verify checkpoints of PyTorch, PaddlePaddle, TensorFlow and their kin.

>>> from ckpt_tools import open_checkpoint
>>> with open_checkpoint("model.pth") as checkpoint:              # doctest: +SKIP
...     for name, tensor in checkpoint.tensors.items():
...         print(name, tensor.info.dtype, tensor.info.shape)
...     weight = checkpoint.tensors["fc.weight"].numpy()
"""

from ckpt_tools.errors import CkptError
from ckpt_tools.formats import open_checkpoint

__version__ = "0.1.0"

__all__ = ["CkptError", "__version__", "open_checkpoint"]
