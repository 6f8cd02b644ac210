"""`nerve.lazy_dataclass` behaves like the standard `dataclass`; `__init__` is generated when it pays."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar, get_type_hints

import pytest

from nerve.lazy_dataclass import CALLS_WITHOUT_CODE, dataclass

OBJECTS = [1, CALLS_WITHOUT_CODE + 1]
"""How many objects of a class are created: the last one by a compiled `__init__`, or not."""


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    unit: ClassVar[str] = "m"
    note: str = field(default="", kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Place(Point):
    """A point with a name."""

    name: str = ""


class City(Place):
    __slots__ = ()


@dataclass(slots=True)
class Counter:
    start: int = 1
    total: int = field(init=False, default=5)
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.start


@dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0


@dataclass(slots=True, eq=False)
class Node:
    value: Any = None

    def __repr__(self) -> str:
        return "own"


STANDARD_POINT = dataclasses.make_dataclass(
    "Point",
    [
        ("x", int),
        ("y", int, 0),
        ("tags", list[str], field(default_factory=list)),
        ("note", str, field(default="", kw_only=True, compare=False, repr=False)),
    ],
    frozen=True,
    slots=True,
)


def make_new_point_class() -> Any:
    """Return a class like `Point` of which there is no object yet."""

    @dataclass(frozen=True, slots=True)
    class NewPoint:
        x: int
        y: int = 0
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", kw_only=True, compare=False, repr=False)

    NewPoint.__qualname__ = "Point"
    return NewPoint


@pytest.mark.parametrize("objects", OBJECTS)
@pytest.mark.parametrize(("args", "kwargs"), [((1,), {}), ((1, 2, ["a"]), {"note": "n"}), ((), {"x": 3})])
def test_objects_are_created_and_shown_as_by_the_standard_decorator(args, kwargs, objects):
    point_class, expected = make_new_point_class(), STANDARD_POINT(*args, **kwargs)
    *_, point = (point_class(*args, **kwargs) for _ in range(objects))
    assert repr(point) == repr(expected)
    assert dataclasses.asdict(point) == dataclasses.asdict(expected)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, [], "note"), {}), ((1,), {"x": 2}), ((1,), {"z": 2})]
)
def test_wrong_arguments_are_refused_as_by_the_standard_decorator(args, kwargs):
    point_class = make_new_point_class()
    errors = []
    for refused in (point_class, STANDARD_POINT, point_class):
        with pytest.raises(TypeError) as raised:
            refused(*args, **kwargs)
        errors.append(str(raised.value))
    assert len(set(errors)) == 1
    assert point_class(1).x == 1


@pytest.mark.parametrize("objects", OBJECTS)
def test_each_object_gets_its_own_default(objects):
    point_class = make_new_point_class()
    *_, point = (point_class(1) for _ in range(objects))
    point.tags.append("a")
    assert point_class(1).tags == []


def test_objects_with_equal_fields_of_the_same_class_are_equal():
    assert Point(1) == Point(1, note="differs, but is not compared")
    assert Point(1) != Point(2)
    assert Point(1) != Place(1)
    assert City(1, name="a") == City(1, name="a")
    assert Node(1) != Node(1)


def test_a_frozen_class_has_a_hash_and_a_mutable_one_has_none():
    assert hash(Version(1, 2)) == hash(Version(1, 2))
    assert {Node(1)}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter())


@pytest.mark.parametrize("thing", [Point(1), Place(1, name="a"), City(1, name="a"), Version(1)])
def test_a_frozen_object_refuses_changes(thing):
    name = "major" if isinstance(thing, Version) else "x"
    with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(thing, name, 5)
    with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(thing, name)


def test_slots_leave_no_dictionary():
    assert not hasattr(Place(1), "__dict__")
    assert Place.__slots__ == ("name",)


def test_fields_can_be_matched_replaced_and_listed():
    match Place(1, 2, ["a"], "home"):
        case Place(x, y, _, name):
            assert (x, y, name) == (1, 2, "home")
        case _:
            pytest.fail("not matched")
    assert dataclasses.replace(Place(1), name="new", note="n") == Place(1, name="new")
    assert [each.name for each in dataclasses.fields(Place)] == ["x", "y", "tags", "note", "name"]
    assert [each.type for each in dataclasses.fields(Place)] == [int, int, list[str], str, str]
    assert get_type_hints(Point)["unit"] == ClassVar[str]


def test_order_and_fields_that_are_no_parameters():
    assert sorted([Version(2), Version(1, 5), Version(1)]) == [Version(1), Version(1, 5), Version(2)]
    for counter in [Counter(4) for _ in range(CALLS_WITHOUT_CODE + 1)]:
        assert (counter.total, counter.doubled) == (5, 8)
    with pytest.raises(TypeError):
        Counter(total=3)


def test_methods_of_the_class_itself_are_kept():
    assert repr(Node()) == "own"
    assert Place.__doc__ == "A point with a name."


@pytest.mark.parametrize("thing", [Point(1, note="n"), City(1, name="a"), Counter(4), Version(1)])
def test_objects_can_be_copied_and_pickled(thing):
    for other in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):  # noqa: S301
        assert type(other) is type(thing)
        assert other == thing


def test_a_frozen_class_with_its_own_equality_has_a_hash():
    @dataclass(frozen=True)
    class Name:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and self.text.lower() == other.text.lower()

    assert Name("a") == Name("A")
    assert hash(Name("a")) == hash(Name("a"))


def test_an_object_that_contains_itself_is_shown():
    node = Counter()
    node.start = node
    assert repr(node) == "Counter(start=..., total=5, doubled=2)"


def test_the_constructor_is_generated_after_some_objects():
    @dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int = 0

    before = Pair.__init__
    assert [Pair(1, number).right for number in range(CALLS_WITHOUT_CODE)] == [*range(CALLS_WITHOUT_CODE)]
    assert Pair.__init__ is before
    assert (Pair(1).left, Pair(2, 3).right) == (1, 3)
    assert Pair.__init__ is not before
    assert Pair.__init__.__qualname__.endswith("Pair.__init__")


def test_the_signature_shows_the_fields_before_and_after_the_constructor_is_generated() -> None:
    @dataclass(frozen=True)
    class Fresh:
        x: int
        y: int = 0

    class Custom(Fresh):
        def __init__(self, z: int) -> None:
            super().__init__(z)

    before = str(inspect.signature(Fresh))
    assert before == "(x: int, y: int = 0)"
    for number in range(CALLS_WITHOUT_CODE + 1):
        Fresh(number)
        assert str(inspect.signature(Fresh)) == before
    assert str(inspect.signature(Fresh.__init__)) == "(self, x: int, y: int = 0)"
    assert str(inspect.signature(Custom)) == "(z: int) -> None"
