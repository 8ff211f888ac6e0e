"""What all tests share: where fixtures are, and a way to run the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Time says nothing on a shared machine; where many runs must agree, they try the same examples.
settings.register_profile(
    "ours", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ours")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # In one process with TensorFlow, Paddle has to be there first: in the other order it dies.
    import paddle  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return ROOT / "fixtures"


@pytest.fixture
def ckpt(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``ckpt`` as a process of its own, in ``tmp_path`` unless told otherwise."""

    def run(*arguments: object, cwd: Path | None = None, **kwargs: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        return subprocess.run(
            [sys.executable, "-m", "ckpt_tools", *map(str, arguments)],
            cwd=cwd or tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            **kwargs,  # type: ignore[call-overload]
        )

    return run
