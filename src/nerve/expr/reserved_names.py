"""Reserved words, and the messages for unsupported words and operators."""

from __future__ import annotations

from typing import Final

from nerve.expr.numbers import INFINITY, NAN
from nerve.expr.values import UNDEFINED, Value


def split_names(words: str) -> frozenset[str]:
    """Return the words of a string as a set."""
    return frozenset(words.split())


LITERAL_VALUES: Final[dict[str, Value]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": UNDEFINED,
    "NaN": NAN,
    "Infinity": INFINITY,
}

UNSUPPORTED_KEYWORDS = split_names(
    """
    async await break case catch class const continue debugger default delete do else enum export extends
    finally for function if implements import instanceof interface let new package private protected public
    return static super switch this throw try var void while with yield
    """
)
KEYWORD_MESSAGES: Final[dict[str, str]] = {
    **{word: f"`{word}` is not part of the language" for word in UNSUPPORTED_KEYWORDS},
    "new": "`new` is not part of the language; values are written as literals",
    "this": "`this` is not part of the language; name what you mean",
    "instanceof": "`instanceof` is not part of the language; use `typeof` or `Array.isArray(…)`",
    "function": "`function` is not part of the language; write an arrow function `x => …`",
    "if": "`if` is not part of the language; write `test ? then : other`",
    "return": "`return` is not part of the language; the expression is the result",
    "delete": "`delete` is not part of the language; values are never changed",
    "in": '`in` needs a key on its left, as in `"name" in inputs`',
    "typeof": "`typeof` needs something on its right",
}

ASSIGNMENT_OPERATORS = "+= -= *= /= %= **= &&= ||= ??= <<= >>= >>>= &= |= ^="
OPERATOR_MESSAGES: Final[dict[str, str]] = {
    **{sign: f"`{sign}` assigns; values are never changed" for sign in ASSIGNMENT_OPERATORS.split()},
    "=": "`=` assigns; compare with `===`",
    "++": "`++` is not part of the language; write `+ 1`",
    "--": "`--` is not part of the language; write `- 1`",
    "&": "`&` is not part of the language; the logical and is `&&`",
    "|": "`|` is not part of the language; the logical or is `||`",
    "^": "`^` is not part of the language; a power is written `**`",
    "~": "`~` is not part of the language",
    "<<": "`<<` is not part of the language",
    ">>": "`>>` is not part of the language",
    ">>>": "`>>>` is not part of the language",
    ";": "Only one expression is allowed, without `;`",
    ",": "Only one expression is allowed, without `,`",
    "=>": "An arrow function can only be passed to a method like `map` or `filter`",
    "...": "`...` is only allowed in arrays, objects and arguments",
}

FORBIDDEN_PROPERTIES: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Properties that cannot be read, even if data has them."""

FORBIDDEN_VARIABLES: Final = frozenset({"eval", "arguments"})
FORBIDDEN_GLOBALS: Final = FORBIDDEN_VARIABLES | split_names(
    """
    Atomics Buffer Date Deno Function Intl Map Promise Proxy Reflect RegExp Set Symbol WeakMap
    WeakRef WebAssembly alert clearTimeout console document exports fetch global globalThis module
    process require self setInterval setTimeout window
    """
)
"""JavaScript globals that are rejected unless the host provides them."""

COPYING_METHOD_BY_NAME: Final = {"sort": "toSorted", "reverse": "toReversed"}
FRESH_METHODS: Final = split_names(
    """
    concat filter flat flatMap map reverse slice sort split toReversed toSorted
    """
)
FRESH_FUNCTIONS: Final = frozenset(
    {"Array.from", "Array.of", "JSON.parse", "Object.entries", "Object.keys", "Object.values"}
)
"""Functions that return a new array, which `sort` and `reverse` may change in place."""

OTHER_LANGUAGE_HINTS: Final = {
    "and": "; the logical and is `&&`",
    "or": "; the logical or is `||`",
    "not": "; the logical not is `!`",
    "is": "; compare with `===`",
    "True": "; write `true`",
    "False": "; write `false`",
    **dict.fromkeys(("None", "nil", "NULL"), "; write `null`"),
}
"""Hints for keywords of other languages."""

FUNCTION_HINTS: Final = {
    **dict.fromkeys(("len", "count", "size"), "; write `value.length`"),
    "str": "; write `String(value)`",
    **dict.fromkeys(("int", "float", "num"), "; write `Number(value)`"),
    "bool": "; write `Boolean(value)`",
    **dict.fromkeys(("abs", "ceil", "floor", "max", "min", "round", "sqrt"), "; it is a function of `Math`"),
    "any": "; write `array.some(x => …)`",
    "all": "; write `array.every(x => …)`",
    "sum": "; write `array.reduce((sum, x) => sum + x, 0)`",
    "sorted": "; write `array.toSorted()`",
    **dict.fromkeys(("json", "tojson", "toJson", "dumps"), "; write `JSON.stringify(value)`"),
    **dict.fromkeys(("fromjson", "fromJson", "loads"), "; write `JSON.parse(text)`"),
    **dict.fromkeys(("contains", "includes"), "; write `value.includes(part)`"),
    "startswith": "; write `text.startsWith(part)`",
    "endswith": "; write `text.endsWith(part)`",
}

METHOD_HINTS: Final = {
    **dict.fromkeys(("contains", "has"), "; use `includes`"),
    "strip": "; use `trim`",
    "upper": "; use `toUpperCase`",
    "lower": "; use `toLowerCase`",
    "append": "; write `[...array, value]`",
    "get": "; write `object[key]`",
    "length": "; it is a property: remove the `()`",
    "push": "; write `[...array, value]`",
    "unshift": "; write `[value, ...array]`",
    "pop": "; write `array.at(-1)` or `array.slice(0, -1)`",
    "shift": "; write `array[0]` or `array.slice(1)`",
    "splice": "; build it from `slice`",
    "forEach": "; use `map`",
    "match": "; regular expressions are not supported",
    "matchAll": "; regular expressions are not supported",
    "search": "; use `indexOf`",
    "test": "; regular expressions are not supported",
    "substr": "; use `slice`",
    "localeCompare": "; compare with `<`",
    "hasOwnProperty": "; write `Object.hasOwn(object, key)`",
    "keys": "; write `Object.keys(…)`",
    "values": "; write `Object.values(…)`",
    "entries": "; write `Object.entries(…)`",
}

INHERITED_BY_OBJECTS: Final = split_names(
    """
    __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ hasOwnProperty isPrototypeOf
    propertyIsEnumerable toLocaleString toString valueOf
    """
)
"""Members that every JavaScript object inherits; reading them is rejected unless data has the key."""

INHERITED_BY_OTHERS: Final = INHERITED_BY_OBJECTS | split_names(
    """
    anchor at big blink bold charAt charCodeAt codePointAt concat copyWithin endsWith entries every
    fill filter find findIndex findLast findLastIndex fixed flat flatMap fontcolor fontsize forEach
    includes indexOf isWellFormed italics join keys lastIndexOf link localeCompare map match
    matchAll normalize padEnd padStart pop push reduce reduceRight repeat replace replaceAll reverse
    search shift slice small some sort splice split startsWith strike sub substr substring sup
    toExponential toFixed toLocaleLowerCase toLocaleUpperCase toLowerCase toPrecision toReversed
    toSorted toSpliced toUpperCase toWellFormed trim trimEnd trimLeft trimRight trimStart unshift
    values with
    """
)
"""Like INHERITED_BY_OBJECTS, for strings, arrays, numbers and booleans."""


def forbidden_property_message(name: str) -> str:
    return f"`{name}` cannot be read; values have only the keys of their data"
