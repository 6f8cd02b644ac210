"""The decorator `dataclass`, as in the standard library, except that `__init__` is generated when it pays.

The standard decorator compiles up to seven methods of each class at import, which takes about a millisecond.
A command imports some two hundred of these classes and creates objects of thirty, mostly one of each class.
The fields of the first objects of a class are set one by one, which costs less than to compile a method for a
few objects. A class whose signature a library reads, such as the options of a command, needs the standard
decorator.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from functools import cache
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

CALLS_WITHOUT_CODE = 10
"""The number of objects of a class that are created before its `__init__` is compiled."""

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
                methods |= {"__eq__": equal_fields, "__hash__": hash_fields if frozen else None}
            if order:
                methods |= ORDER_METHODS
            if frozen:
                methods |= FROZEN_METHODS | (STATE_METHODS if slots else {})
            own = vars(cls)
            for name, method in methods.items():
                # Python sets __hash__ to None in a class with its own __eq__; such a None is not a decision.
                if own.get(name) is None and getattr(cls, name, MISSING) is not method:
                    setattr(cls, name, method)
            cls.__signature__ = LazySignature(cls)
            return cls

        return decorate if cls is None else decorate(cls)


def make_fields(cls: type, slots: bool, kw_only: bool) -> type:
    """Return the class with the parts of a dataclass that need no generated code."""
    doc, annotations = cls.__doc__, vars(cls).get("__annotations__", {})
    # The standard decorator parses annotations that are strings, and writes a signature into an empty doc.
    cls.__doc__ = doc or cls.__name__
    cls.__annotations__ = {
        name: ClassVar if is_class_variable(text) else Any for name, text in annotations.items()
    }
    made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    made.__doc__, made.__annotations__ = doc, annotations
    fields = vars(made)["__dataclass_fields__"]
    for name, annotation in annotations.items():
        fields[name].type = annotation
    return made


def is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def make_init_stub(cls: type, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` for the first objects, which is then replaced by the generated one."""
    calls = 0

    def initialize(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > CALLS_WITHOUT_CODE or not set_fields(self, cls, args, kwargs):
            # It also raises the error if the arguments are wrong.
            cls.__init__ = method = generate_init(cls, frozen)  # type: ignore[misc]
            method(self, *args, **kwargs)

    return initialize


def set_fields(self: Any, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Set the fields of a new object as the generated method does; return False for wrong arguments."""
    fields = dataclasses.fields(cls)
    names = [each.name for each in fields if each.init and not each.kw_only]
    given = dict(zip(names, args, strict=False)) | kwargs
    if len(given) < len(args) + len(kwargs):
        return False
    for each in fields:
        if each.init and each.name in given:
            value = given.pop(each.name)
        elif each.default is not MISSING:
            value = each.default
        elif each.default_factory is not MISSING:
            value = each.default_factory()
        elif each.init:
            return False
        else:
            continue  # __post_init__ sets it
        object.__setattr__(self, each.name, value)
    if given:
        return False
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return True


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
        if not frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            # Faster than object.__setattr__, which looks the slot up again.
            namespace[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if keyword_parameters:
        parameters += ["*", *keyword_parameters]
    head = f"def __init__({', '.join(['self', *parameters])}):\n "
    exec(head + "\n ".join(body or ["pass"]), namespace)  # noqa: S102 - names of fields, as written in the class
    method: Callable[..., None] = namespace["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {each.name: each.type for each in dataclasses.fields(cls) if each.init}
    return method


class LazySignature:
    """The `__signature__` of a class, so that `help` and editors show its fields before it is used."""

    def __init__(self, cls: type) -> None:
        self._class = cls

    def __get__(self, instance: object, owner: type) -> Any:
        if owner is not self._class or "__init__" not in vars(owner):
            raise AttributeError("__signature__")  # a subclass has a signature of its own
        import inspect

        signature = inspect.signature(generate_init(owner, frozen=False))
        return signature.replace(parameters=list(signature.parameters.values())[1:])


@recursive_repr()
def show_fields(self: Any) -> str:
    values = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr
    )
    return f"{self.__class__.__qualname__}({values})"


def equal_fields(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    read_values = find_reader(self.__class__)
    return read_values(self) == read_values(other)


def compare_fields(self: Any, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    read_values = find_reader(self.__class__)
    return compare(read_values(self), read_values(other))


def hash_fields(self: Any) -> int:
    return hash(find_reader(self.__class__)(self))


@cache
def find_reader(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gets the compared values of an object."""
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def refuse_assignment(self: Any, name: str, value: Any) -> None:
    if is_frozen_name(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def refuse_deletion(self: Any, name: str) -> None:
    if is_frozen_name(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def is_frozen_name(self: Any, name: str) -> bool:
    """Whether an attribute cannot change: all of a frozen class, and its fields in an ordinary subclass."""
    return name in self.__dataclass_fields__ or "__dataclass_fields__" in vars(type(self))


def get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


ORDER_METHODS = {
    "__lt__": lambda self, other: compare_fields(self, other, operator.lt),
    "__le__": lambda self, other: compare_fields(self, other, operator.le),
    "__gt__": lambda self, other: compare_fields(self, other, operator.gt),
    "__ge__": lambda self, other: compare_fields(self, other, operator.ge),
}
FROZEN_METHODS = {"__setattr__": refuse_assignment, "__delattr__": refuse_deletion}
STATE_METHODS = {"__getstate__": get_state, "__setstate__": set_state}
"""For pickling and copying, which set the fields of a new object."""
