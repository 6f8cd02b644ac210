"""The decorator `dataclass`, as in the standard library, except that `__init__` is generated on first use.

The standard decorator compiles up to seven methods of each class at import, which takes about a millisecond.
A command imports some two hundred of these classes and creates objects of thirty. A class whose signature a
library reads, such as the options of a command, needs the standard decorator.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls=None, /, *, frozen=False, slots=False, eq=True, order=False, kw_only=False
    ) -> Callable[[type], type] | type:
        """Make a class a dataclass; its fields, slots and `__match_args__` exist at once."""

        def decorate(cls: type) -> type:
            cls = make_fields(cls, slots, kw_only)
            methods = {"__init__": make_init_stub(cls, frozen), "__repr__": show_fields}
            if eq:
                methods |= make_equality(cls, frozen)
            if order:
                methods |= {f"__{name}__": make_comparison(cls, getattr(operator, name)) for name in ORDER}
            own = vars(cls)
            for name, method in methods.items():
                if own.get(name) is None:  # Python sets __hash__ to None in a class with its own __eq__
                    setattr(cls, name, method)
            if frozen:
                add_frozen_methods(cls, slots)
            return cls

        return decorate if cls is None else decorate(cls)


ORDER = ("lt", "le", "gt", "ge")


def make_fields(cls: type, slots: bool, kw_only: bool) -> type:
    """Return the class with the parts of a dataclass that need no generated code."""
    has_doc = cls.__doc__ is not None
    if not has_doc:  # without one, the standard decorator inspects the class to write its signature
        cls.__doc__ = cls.__name__
    decorate = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    made: type = decorate(cls)
    if not has_doc:
        made.__doc__ = None
    return made


def make_init_stub(cls: type, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` whose first call replaces it by the generated one."""

    def initialize(self: Any, /, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = method = generate_init(cls, frozen)  # type: ignore[misc]
        method(self, *args, **kwargs)

    return initialize


def generate_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Compile `__init__` with the fields as parameters."""
    # Defaults are values of the namespace, so that the source consists of names only.
    namespace: dict[str, Any] = {"__name__": cls.__module__, "_MISSING": MISSING, "_set": object.__setattr__}
    parameters: list[str] = []
    keyword_parameters: list[str] = []
    body: list[str] = []
    for each in dataclasses.fields(cls):
        name = value = each.name
        parameter = name
        if each.default is not MISSING:
            namespace[f"_default_{name}"] = each.default
            parameter, value = f"{name}=_default_{name}", name if each.init else f"_default_{name}"
        elif each.default_factory is not MISSING:
            namespace[f"_make_{name}"] = each.default_factory
            parameter, value = f"{name}=_MISSING", f"_make_{name}()"
            if each.init:
                value += f" if {name} is _MISSING else {name}"
        elif not each.init:
            continue  # __post_init__ sets it
        if each.init:
            (keyword_parameters if each.kw_only else parameters).append(parameter)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if keyword_parameters:
        parameters += ["*", *keyword_parameters]
    head = f"def __init__({', '.join(['self', *parameters])}):\n "
    exec(head + "\n ".join(body or ["pass"]), namespace)  # noqa: S102 - names of fields, as written in the class
    method: Callable[..., None] = namespace["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method


@recursive_repr()
def show_fields(self: Any) -> str:
    values = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr
    )
    return f"{self.__class__.__qualname__}({values})"


def make_equality(cls: type, frozen: bool) -> dict[str, Any]:
    """Return `__eq__`, and the `__hash__` that goes with it: none for a class whose objects change."""
    return {"__eq__": make_comparison(cls, operator.eq), "__hash__": make_hash(cls) if frozen else None}


def make_comparison(cls: type, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    read_values: Callable[[Any], tuple[Any, ...]] | None = None

    def compare_fields(self: Any, other: Any) -> Any:
        nonlocal read_values
        if other.__class__ is not self.__class__:
            return NotImplemented
        if read_values is None:
            read_values = make_reader([each.name for each in dataclasses.fields(cls) if each.compare])
        return compare(read_values(self), read_values(other))

    return compare_fields


def make_hash(cls: type) -> Callable[[Any], int]:
    read_values: Callable[[Any], tuple[Any, ...]] | None = None

    def hash_fields(self: Any) -> int:
        nonlocal read_values
        if read_values is None:
            fields = dataclasses.fields(cls)
            names = [each.name for each in fields if (each.compare if each.hash is None else each.hash)]
            read_values = make_reader(names)
        return hash(read_values(self))

    return hash_fields


def make_reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gets the values of an object with these names."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def add_frozen_methods(cls: type, slots: bool) -> None:
    """Refuse changes of the objects; only pickling and copying set the fields of a new one."""
    names = frozenset(vars(cls)["__dataclass_fields__"])

    def refuse_assignment(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def refuse_deletion(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    cls.__setattr__, cls.__delattr__ = refuse_assignment, refuse_deletion  # type: ignore[assignment,method-assign]
    if slots:
        cls.__getstate__, cls.__setstate__ = get_state, set_state  # type: ignore[assignment,attr-defined]


def get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
