"""What must stand in a file that certood wrote and somebody may have changed: a form is checked before it is used.

A form is a type, `[form]` for a list, `{str: form}` for a mapping with any names, `{"name": form, "other?": form}` for
one with these names, a question mark behind those that may be left out; further names are allowed.
"""

import math
from typing import Any

KINDS = {str: "a text", int: "a whole number", float: "a finite number", dict: "a mapping", bool: "true or false"}
LARGEST_WHOLE = 2**63


def check(value: Any, form: Any, where: str = "it") -> None:
    """ValueError with the place and what was expected there.

    >>> check({"rows": [1, 2]}, {"rows": [int]})
    >>> check({"rows": [1, "2"]}, {"rows": [int]})
    Traceback (most recent call last):
    ValueError: it[rows][1] is '2', not a whole number
    """
    if isinstance(form, type):
        if not _is(value, form):
            raise ValueError(f"{where} is {_short(value)}, not {KINDS.get(form, form.__name__)}")
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} is {_short(value)}, not a list")
        for index, member in enumerate(value):
            check(member, form[0], f"{where}[{index}]")
    elif not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{where} is {_short(value)}, not a mapping")
    elif str in form:
        for name, member in value.items():
            check(member, form[str], f"{where}[{name}]")
    else:
        for name, inner in form.items():
            if name.rstrip("?") in value:
                check(value[name.rstrip("?")], inner, f"{where}[{name.rstrip('?')}]")
            elif not name.endswith("?"):
                raise ValueError(f"{where} lacks {name}")


def _is(value: Any, kind: Any) -> bool:
    if kind is float:
        return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < LARGEST_WHOLE)
    if kind is dict:  # torch's state dicts are ordered ones
        return isinstance(value, dict)
    return type(value) is kind and (kind is not int or abs(value) < LARGEST_WHOLE)


def stays_inside(name: str) -> bool:
    """May it name a file in a folder, without leading out of it?"""
    return all(part not in ("", ".", "..") for part in name.split("/")) and not set(name) & set("\\\0\n\r")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
