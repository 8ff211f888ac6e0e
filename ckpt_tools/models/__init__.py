"""Live models: ``package.module:attribute`` becomes names, shapes, types and layer kinds. The only importer of frameworks.

A live model is the user's own code, which they named: it is imported and, where it is a class or a factory, called. The
working directory is importable. What it prints goes to stderr. Weights are not allocated where the framework offers
that (torch's meta device, Paddle's LazyGuard) and the constructor goes along; otherwise it is built as usual.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from ckpt_tools.errors import MissingInput, UnreadableInput, UsageError
from ckpt_tools.models.live import LiveGraph, LiveModel, LiveNode, LiveTensor

__all__ = ["LiveGraph", "LiveModel", "LiveNode", "LiveTensor", "load_model", "read_kwargs"]


def load_model(reference: str, kwargs: Mapping[str, Any] | None = None) -> LiveModel:
    """The model behind ``package.module:attribute``.

    The attribute is an instance, or a class or function that gives one when called with ``kwargs``. UsageError when the
    reference has another form; UnreadableInput, in one sentence with the model's own error, when it cannot be had.
    """
    module_name, colon, attribute = reference.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f"{reference!r} is no model; package.module:attribute is expected")
    with redirect_stdout(sys.stderr), warnings.catch_warnings(), _working_directory_importable():
        warnings.simplefilter("ignore")  # the frameworks', on import; they would drown the answer
        found = _resolve(reference, module_name, attribute)
        if _is_model(found):
            if kwargs:
                raise UsageError(f"{reference} is an instance already: --kwargs has nothing to be given to")
            built = found
        elif callable(found):
            built = _build(reference, found, dict(kwargs or {}))
        else:
            built = found
        return _describe(reference, built)


def read_kwargs(text: str | None, path: Path | None) -> dict[str, Any]:
    """Arguments from ``--kwargs`` (JSON) or ``--kwargs-file`` (JSON, TOML or YAML by its suffix). UsageError otherwise."""
    if text is not None and path is not None:
        raise UsageError("give either --kwargs or --kwargs-file")
    if text is None and path is None:
        return {}
    where = "--kwargs" if path is None else str(path)
    try:
        loaded = json.loads(text) if text is not None else _load_file(path or Path())
    except FileNotFoundError:
        raise MissingInput("no such file", where=where) from None
    except OSError as error:
        raise UnreadableInput(f"cannot be read: {error.strerror}", where=where) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"cannot be parsed: {_first_line(error)}", where=where) from None
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise UsageError("arguments are an object of names and values", where=where)
    return loaded


def _load_file(path: Path) -> Any:
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        try:
            import yaml
        except ImportError:
            raise UsageError(
                "YAML is read through PyYAML, which is not installed",
                where=str(path),
                hint="pip install 'ckpt-tools[yaml]'",
            ) from None
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    return json.loads(text)


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _resolve(reference: str, module_name: str, attribute: str) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's C++ start-up notes
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(missing + "."):
            raise MissingInput(
                f"there is no module {missing!r} here or among the installed ones", where=reference
            ) from None
        raise UnreadableInput(
            f"importing {module_name} needs {missing!r}, which is not installed", where=reference
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UnreadableInput(f"importing {module_name} fails: {_first_line(error)}", where=reference) from None
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [name for name in dir(found) if name[0] != "_" and callable(getattr(found, name, None))]
            raise MissingInput(
                f"{module_name} has no {attribute!r}; it has {', '.join(names[:12]) or 'nothing'}", where=reference
            ) from None
    return found


def _build(reference: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Call it, without allocating weights first, and plainly when that does not work."""
    failure: BaseException | None = None
    for guard in (_without_weights(factory), nullcontext()):
        try:
            with guard:
                return factory(**kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failure = error
    assert failure is not None
    hint = None
    if isinstance(failure, TypeError) and "argument" in str(failure):
        hint = "arguments are given by --kwargs '{\"name\": value}' or --kwargs-file"
    raise UnreadableInput(f"calling it fails: {_first_line(failure)}", where=reference, hint=hint) from None


def _without_weights(factory: Any) -> AbstractContextManager[Any]:
    """The loaded frameworks' ways to build a model without memory for it, entered together."""
    stack = ExitStack()
    torch, paddle = sys.modules.get("torch"), sys.modules.get("paddle")
    if torch is not None:
        stack.enter_context(torch.device("meta"))
    if paddle is not None and not _is_subclass(factory, torch, "nn.Module"):
        stack.enter_context(paddle.LazyGuard())
    return stack


def _is_subclass(factory: Any, module: Any, path: str) -> bool:
    if module is None or not isinstance(factory, type):
        return False
    for part in path.split("."):
        module = getattr(module, part)
    return issubclass(factory, module)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ---- what it is


def _is_model(found: Any) -> bool:
    return not isinstance(found, type) and (isinstance(found, Mapping) or _framework_of(found) is not None)


def _framework_of(found: Any) -> str | None:
    """``torch``, ``paddle`` or ``keras`` (which has TensorFlow's objects too); None for anything else."""
    if isinstance(found, type):
        return None
    torch, paddle = sys.modules.get("torch"), sys.modules.get("paddle")
    if torch is not None and isinstance(found, torch.nn.Module):
        return "torch"
    if paddle is not None and isinstance(found, paddle.nn.Layer):
        return "paddle"
    keras, tensorflow = sys.modules.get("keras"), sys.modules.get("tensorflow")
    if keras is not None and isinstance(found, keras.layers.Layer):
        return "keras"
    if tensorflow is not None and isinstance(found, (tensorflow.Module, tensorflow.train.Checkpoint)):
        return "keras"
    return None


def _describe(reference: str, built: Any) -> LiveModel:
    framework = _framework_of(built)
    if framework == "torch":
        from ckpt_tools.models import torch_models

        return torch_models.describe(reference, built)
    if framework == "paddle":
        from ckpt_tools.models import paddle_models

        return paddle_models.describe(reference, built)
    if framework == "keras":
        from ckpt_tools.models import keras_models

        return keras_models.describe(reference, built)
    if isinstance(built, Mapping):
        return _describe_mapping(reference, built)
    raise UnreadableInput(
        f"gives {type(built).__module__}.{type(built).__qualname__}; a torch.nn.Module, paddle.nn.Layer, keras.Model,"
        " tf.Module, tf.train.Checkpoint or a mapping of names to shapes is expected",
        where=reference,
    )


def _describe_mapping(reference: str, mapping: Mapping[Any, Any]) -> LiveModel:
    """Names to shapes, or to anything with ``shape`` and ``dtype``."""
    tensors = []
    for name, value in mapping.items():
        shape = getattr(value, "shape", value)
        try:
            extents = tuple(int(extent) for extent in shape)
        except (TypeError, ValueError):
            raise UnreadableInput(f"{name!s:.100} is mapped to something that is no shape", where=reference) from None
        dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]
        tensors.append(LiveTensor(str(name), dtype, extents))
    return LiveModel(reference, None, tuple(tensors))
