"""The frameworks side by side in one process: Paddle has to be there before TensorFlow, in the other order it dies."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import paddle  # noqa: F401
