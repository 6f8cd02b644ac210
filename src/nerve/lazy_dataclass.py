"""The decorator `dataclass`, as in the standard library, except that methods are generated on first use.

The standard decorator compiles up to seven methods of each class at import, which takes about a millisecond.
A command imports some two hundred of these classes and creates objects of thirty. A class whose signature a
library reads, such as the options of a command, needs the standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError
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
            add_stubs(cls, frozen, slots, eq, order)
            if frozen:
                add_frozen_methods(cls, slots)
            return cls

        return decorate if cls is None else decorate(cls)


ORDER_METHODS = ("__lt__", "__le__", "__gt__", "__ge__")


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


def add_stubs(cls: type, frozen: bool, slots: bool, eq: bool, order: bool) -> None:
    """Add stubs of the methods; the first call of one replaces it by the generated method."""
    own = vars(cls)
    # Python sets __hash__ to None in a class that defines __eq__; such a None is not a decision.
    has_own_hash = "__hash__" in own and (own["__hash__"] is not None or "__eq__" not in own)
    names = ["__init__", "__repr__", *(("__eq__",) if eq else ()), *(ORDER_METHODS if order else ())]
    for name in names:
        if name not in own:
            setattr(cls, name, make_stub(cls, name, frozen, slots))
    if eq and not has_own_hash:
        cls.__hash__ = make_stub(cls, "__hash__", frozen, slots) if frozen else None  # type: ignore[assignment]


def make_stub(cls: type, name: str, frozen: bool, slots: bool) -> Callable[..., Any]:
    def stub(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        method = generate_method(cls, name, frozen, slots)
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return stub


def generate_method(cls: type, name: str, frozen: bool, slots: bool) -> Callable[..., Any]:
    """Return a method of a standard dataclass with the same fields."""
    all_fields = dataclasses.fields(cls)
    namespace: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": "A class for its methods.",
        "__annotations__": {each.name: each.type for each in all_fields},
    }
    for each in all_fields:
        namespace[each.name] = copy_field(each)
    if hasattr(cls, "__post_init__"):
        namespace["__post_init__"] = None  # generated code calls the one of the object
    decorate = dataclasses.dataclass(
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name in ("__eq__", "__hash__", *ORDER_METHODS),
        order=name in ORDER_METHODS,
        frozen=frozen and name in ("__init__", "__hash__"),
        slots=slots,
    )
    method: Callable[..., Any] = getattr(decorate(type(cls.__name__, (), namespace)), name)
    return method


def copy_field(field: dataclasses.Field[Any]) -> Any:
    """Return a new specification of a field, for another class."""
    if field.default is not dataclasses.MISSING:
        default = {"default": field.default}
    elif field.default_factory is not dataclasses.MISSING:
        default = {"default_factory": field.default_factory}
    else:
        default = {}
    options = {name: getattr(field, name) for name in ("init", "repr", "compare", "hash", "kw_only")}
    return dataclasses.field(**options, **default)


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
