"""What the modules here say of functions that are old, or lack a library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.argtools import log_once

Function = Callable[..., Any]


def create_dummy_func(func: str, dependency: str | list[str]) -> Function:
    """Return what stands for a function whose library is missing: to call it is an `ImportError` that names both."""

    def unavailable(*args: Any, **kwargs: Any) -> Any:
        raise ImportError(f"{func} needs {_names(dependency)}, which cannot be imported: pip install it")

    return unavailable


def create_dummy_class(klass: str, dependency: str | list[str]) -> type:
    """Return what stands for a class whose library is missing: to use it is an `ImportError` that names both."""
    message = f"{klass} needs {_names(dependency)}, which cannot be imported: pip install it"

    class Unavailable(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise ImportError(message)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            raise ImportError(message)

    return Unavailable(klass, (), {})


def _names(dependency: str | list[str]) -> str:
    return dependency if isinstance(dependency, str) else ", ".join(dependency)


def building_rtfd() -> bool:
    """Whether tensorpack's own documentation is being built: never here."""
    return False


def log_deprecated(name: str = "", text: str = "", eos: str = "", max_num_warnings: int | None = None) -> None:
    """Warn that something is deprecated.

    Args:
        name: what.
        text: what to use instead.
        eos: the date after which it may be gone.
        max_num_warnings: how often to say so at most; by default each time.
    """
    message = f"{name} " if name else ""
    message += "is deprecated" if name else "Deprecated"
    message += f" and may be gone after {eos}. " if eos else ". "
    if max_num_warnings is None:
        logger.warning("[Deprecated] %s%s", message, text)
    else:
        log_once(f"[Deprecated] {message}{text}", "warning")


def deprecated(text: str = "", eos: str = "", max_num_warnings: int | None = None) -> Callable[[Function], Function]:
    """Return a decorator for what is deprecated: each call warns.

    Args:
        text: what to use instead.
        eos: the date after which it may be gone.
        max_num_warnings: how often to say so at most.
    """

    def decorate(func: Function) -> Function:
        @functools.wraps(func)
        def warned(*args: Any, **kwargs: Any) -> Any:
            log_deprecated(func.__name__, text, eos, max_num_warnings)
            return func(*args, **kwargs)

        return warned

    return decorate


def HIDE_DOC(func: Function) -> Function:
    """Decorate what tensorpack's own documentation leaves out; it stays as it is."""
    return func
