"""Read, compare, convert, repair and verify checkpoints of PyTorch, PaddlePaddle, TensorFlow and their kin.

>>> from ckpt_tools import open_checkpoint
>>> with open_checkpoint("model.pth") as checkpoint:              # doctest: +SKIP
...     for name, tensor in checkpoint.tensors.items():
...         print(name, tensor.info.dtype, tensor.info.shape)
...     weight = checkpoint.tensors["fc.weight"].numpy()
"""

TYPE_CHECKING = False  # importing typing's takes longer than everything that has to come before signals are seen to
if TYPE_CHECKING:
    from ckpt_tools.errors import CkptError
    from ckpt_tools.formats import open_checkpoint

__version__ = "0.1.0"

__all__ = ["CkptError", "__version__", "open_checkpoint"]


def __getattr__(name: str) -> object:
    """Load what is asked for: the command line sees to signals before it loads the readers."""
    if name == "CkptError":
        from ckpt_tools.errors import CkptError

        return CkptError
    if name == "open_checkpoint":
        from ckpt_tools.formats import open_checkpoint

        return open_checkpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
