"""Random specs: every kind of node with every field that the models declare."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, MaxLen, MinLen
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from nerve.spec import models

ODD = [
    *[
        "",
        " ",
        "  a",
        "a ",
        "\n",
        "a\n",
        "a\n\n",
        "\n a",
        "a\n  b\n\tc",
        "\t",
        "a\r\nb",
        "\r",
        "\x85",
        "\u2028",
    ],
    *["'", '"', "''", '"""', "it's", 'say "x"', "\\", "\\n", "\\u0041", "a\\", "`", "~", "~a", "$1", "${X}"],
    *["{{", "}}", "{{ given }}", "{{ input }} and", "{{ 'a' }}", "\\{{", "{a}", "{", "[", "]", "(", ")", ","],
    *["null", "nil", "true", "false", "yes", "no", "on", "off", "True", "NaN", "Infinity", ".inf", ".nan"],
    *["0", "1", "-1", "+1", "007", "0x1f", "0o17", "1e3", "1.0", "1.", ".5", "1:30", "2020-01-01", "1_000"],
    *["- a", "-", "--", "---", "...", "? a", "a: b", "a:b", ":", ":a", "a:", "# a", "a # b", "a #b", "#"],
    *["&a", "*a", "!a", "!!str a", "%YAML", "@a", "|", ">", "<<", "=", ";", "; a", "#|", "|#", "?x", "_"],
    *[
        "kind",
        "body",
        "steps",
        "id",
        "é",
        "ß ü",
        "日本",
        "🙂",
        "\u200b",
        "\ufeff",
        "\xa0",
        "\x7f",
        "\x01",
        "\uffff",
    ],
    *["a" * 127, "x y " * 60, "k" * 1500, "line\n" * 30],
]
"""Texts that some notation could mistake for something else."""
LARGEST = 2**53

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.sampled_from(ODD) | st.text(characters, max_size=20) | st.text("ab \n:-#'\"{}[]\\,", max_size=10)
numbers = st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def workflows(deep: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """The plain data of workflows with nodes nested up to a depth."""
    wide = st.lists(nodes(1), min_size=4, max_size=8)
    body = nodes(deep) | wide.map(lambda steps: {"kind": "sequence", "steps": steps})
    return st.builds(lambda spec, body: {**spec, "body": body}, fields(models.WorkflowSpec, 0), body)


def nodes(deep: int) -> st.SearchStrategy[Any]:
    kinds = [model for model in models.KINDS.values() if deep > 0 or not needs_node(model)]
    return st.sampled_from(kinds).flatmap(lambda model: fields(model, deep))


@st.composite
def fields(draw: st.DrawFn, model: type[models.SpecModel], deep: int) -> dict[str, Any]:
    """All required fields and some optional ones."""
    model.model_rebuild()  # models are built on first use, and have strings as annotations before
    known = model.model_fields
    optional = [name for name, field in known.items() if not field.is_required()]
    some = draw(st.sets(st.sampled_from(optional), max_size=6)) if optional else set()
    wanted = [name for name, field in known.items() if field.is_required() or name in some]
    return {name: draw(values(annotated(known[name]), deep)) for name in wanted}


def values(kind: Any, deep: int) -> st.SearchStrategy[Any]:
    """The values of an annotation."""
    if kind is Any:
        return json_values
    if is_node(kind):
        return nodes(deep - 1)
    if isinstance(kind, type) and issubclass(kind, models.SpecModel):
        return fields(kind, deep)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return bounded(inner[0], inner[1:], deep)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of([values(each, deep) for each in inner if deep > 0 or not is_node(each)])
    if origin is list:
        most = 3 if deep > 0 or not is_node(inner[0]) else 0
        return st.lists(values(inner[0], deep), max_size=most) if most else st.just([])
    if origin is dict:
        most = 3 if deep > 0 or not is_node(inner[1]) else 0
        if not most:
            return st.just({})
        return st.dictionaries(values(inner[0], deep), values(inner[1], deep), max_size=most)
    return PLAIN[kind]


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    bool: st.booleans(),
    int: st.integers(-LARGEST, LARGEST),
    float: st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 90),
    NoneType: st.none(),
}


def bounded(kind: Any, bounds: tuple[Any, ...], deep: int) -> st.SearchStrategy[Any]:
    """The values of an annotation that are within its bounds."""
    flat = [
        each for bound in bounds for each in (bound.metadata if isinstance(bound, FieldInfo) else [bound])
    ]
    limits = {type(bound): bound for bound in flat}
    if kind is str:
        least = limits[MinLen].min_length if MinLen in limits else 0
        most = limits[MaxLen].max_length if MaxLen in limits else 1 << 20
        return texts.map(lambda text: text[:most]).filter(lambda text: len(text) >= least)
    if kind is int:
        return st.integers(limits[Ge].ge, 10) | st.integers(limits[Ge].ge, LARGEST)
    if kind is float:
        return st.floats(limits[Ge].ge, allow_nan=False, allow_infinity=False) | st.integers(
            limits[Ge].ge, 90
        )
    return values(kind, deep)


def annotated(field: FieldInfo) -> Any:
    """The annotation of a field, with its bounds."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def is_node(kind: Any) -> bool:
    """Whether an annotation is that of any node."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return set(models.KINDS.values()) <= set(get_args(kind)) and NoneType not in get_args(kind)


def needs_node(model: type[models.SpecModel]) -> bool:
    model.model_rebuild()
    return any(field.is_required() and is_node(field.annotation) for field in model.model_fields.values())
