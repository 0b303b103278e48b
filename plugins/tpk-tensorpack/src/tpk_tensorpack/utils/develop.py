"""Deprecated functions, and replacements for functions of missing libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.argtools import log_once

Function = Callable[..., Any]


def create_dummy_func(func: str, dependency: str | list[str]) -> Function:
    """Return a replacement for a function of a missing library: calling it raises an `ImportError` that names both."""

    def unavailable(*args: Any, **kwargs: Any) -> Any:
        raise _missing(func, dependency)

    return unavailable


def create_dummy_class(klass: str, dependency: str | list[str]) -> type:
    """Return a replacement for a class of a missing library: using it raises an `ImportError` that names both."""

    class Unavailable(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise _missing(klass, dependency)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            raise _missing(klass, dependency)

    return Unavailable(klass, (), {})


def _missing(name: str, dependency: str | list[str]) -> ImportError:
    needed = dependency if isinstance(dependency, str) else ", ".join(dependency)
    return ImportError(f"{name} needs {needed}, which cannot be imported: pip install it")


def building_rtfd() -> bool:
    """Return whether tensorpack's own documentation is being built: always False here."""
    return False


def log_deprecated(name: str = "", text: str = "", eos: str = "", max_num_warnings: int | None = None) -> None:
    """Warn about something deprecated.

    Args:
        name: its name.
        text: what to use instead.
        eos: the date after which it may be removed.
        max_num_warnings: the maximum number of warnings; unlimited by default.
    """
    message = f"{name} " if name else ""
    message += "is deprecated" if name else "Deprecated"
    message += f" and may be gone after {eos}. " if eos else ". "
    if max_num_warnings is None:
        logger.warning("[Deprecated] %s%s", message, text)
    else:
        log_once(f"[Deprecated] {message}{text}", "warning")


def deprecated(text: str = "", eos: str = "", max_num_warnings: int | None = None) -> Callable[[Function], Function]:
    """Return a decorator that warns about each call of a deprecated function.

    Args:
        text: what to use instead.
        eos: the date after which it may be removed.
        max_num_warnings: the maximum number of warnings.
    """

    def decorate(func: Function) -> Function:
        @functools.wraps(func)
        def warned(*args: Any, **kwargs: Any) -> Any:
            log_deprecated(func.__name__, text, eos, max_num_warnings)
            return func(*args, **kwargs)

        return warned

    return decorate


def HIDE_DOC(func: Function) -> Function:
    """Return the function unchanged; in tensorpack this hides it from the documentation."""
    return func
