"""Random expressions, mostly well typed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

SCOPE = {
    "inputs": {
        "name": "Ada Lovelace",
        "empty": "",
        "text": "  one, two,three \u00a0",
        "smile": "a\U0001f600b\u00e9\U00010400",
        "count": 3,
        "price": 19.99,
        "zero": 0,
        "tiny": 1.5e-7,
        "large": 123456789012345,
        "huge": 1.7e300,
        "digits": "42",
        "no": False,
        "yes": True,
        "nothing": None,
        "numbers": [3, -1, 2.5, 10, 0],
        "words": ["pear", "Apple", "fig", "\U0001f600", "\uff5e"],
        "mixed": [1, "1", True, None, [2, [3]], {"a": 1}],
        "items": [
            {"id": 1, "name": "b", "tags": ["x", "y"], "ok": True},
            {"id": 2, "name": "a", "tags": [], "ok": False},
            {"id": 10, "name": "B", "tags": ["y"], "ok": True},
        ],
        "table": {"b": 1, "10": 2, "a": 3, "2": 4, "-1": 5, "01": 6},
        "json": '{"k": [1, 2.50, -0, "\\u00e9", null], "7": true}',
    },
    "context": {"test": {"success": True, "output": "3 passed", "data": {"passed": 3, "failed": 0}}},
    "item": {"id": 7, "name": "seven"},
    "index": 4,
}

KNOWN = {
    "number": """inputs.count inputs.price inputs.zero inputs.tiny inputs.large inputs.huge index item.id
        context.test.data.passed inputs.words.length inputs.smile.length""",
    "string": """inputs.name inputs.empty inputs.text inputs.smile inputs.digits item.name context.test.output
        inputs.words[1] inputs.items[0].name inputs.json""",
    "boolean": "inputs.no inputs.yes context.test.success inputs.items[1].ok",
    "numbers": "inputs.numbers Object.values(context.test.data)",
    "strings": "inputs.words inputs.items[0].tags Object.keys(inputs.table)",
    "objects": "inputs.items inputs.items.slice(1)",
    "array": "inputs.mixed inputs.numbers inputs.words inputs.items []",
    "object": "inputs.table item inputs.items[0] context.test.data",
    "nothing": "inputs.nothing inputs.missing null undefined item?.missing?.deeper",
}
"""What of each kind is in sight."""

LITERALS = {
    "number": """
        0 1 2 -1 3 7 10 100 0.5 -0.5 1.5 2.5 -2.5 0.1 0.2 0.3 1e21 1e-7 123456789 4294967295 4294967296
        9007199254740991 9007199254740992 1e300 5e-324 0x1f NaN Infinity -Infinity -0 .5 5. 1e3 0.000001
        123e-20 1.005 1234.5678
    """,
    "string": r"""
        '' 'a' "b" 'abc' 'Hello_World' '12' '_12_' '0x1F' '1e3' '-0' 'true' 'null' ',' '_' 'é' 'ß' 'İ' 'ΑΣ'
        'ſ' 'ŉ' '😀' 'a😀b' '\ud83d' '\ude00' '\u{1F600}x' '\n\t' '\'' "\\" '$&' '$$' '$1' "$`" "$'" 'length'
        '0' '1' '-1' '1.0' 'aXbXc' 'aaa' '\u00a0_x_\ufeff' '[1,2]' '{"a":1}' '1,2,3' 'Infinity' '１２'
        '\uffff' '+5' '.5' '5.' 'e'
    """,
    "boolean": "true false",
}
"""What of each kind can be written down; `_` stands for a blank."""

# «kind» is an expression of the kind, «~kind» one that need not be, «a|b» one of these texts, and
# «kind→kind» an arrow function from one to the other.
FORMS = {
    "number": """
        («~number» «+|-|*|/|%|**» («~number»))
        («~number» «+|-|*|/|%» («~number»))
        «-|+»(«~number»)
        Math.«abs|ceil|floor|round|trunc|sign|sqrt»(«~number»)
        Math.«max|min|pow»(«~number», «~number»)
        Math.«max|min»(...«numbers»)
        Number(«~string»)
        «parseInt|parseFloat|Number.parseFloat»(«~string»)
        parseInt(«~string», «10|16|2|0|36|1»)
        («string»).length
        («string»).«indexOf|lastIndexOf»(«~string»)
        («string»).«indexOf|lastIndexOf»(«~string», «integer»)
        («string»).«charCodeAt|codePointAt»(«integer»)
        («list»).length
        («array»).«indexOf|lastIndexOf»(«~number»)
        («array»).«indexOf|lastIndexOf»(«~number», «integer»)
        («numbers»).reduce(«number,number→number», «~number»)
        («numbers»).«findIndex|findLastIndex»(«number→boolean»)
        («boolean» ? «~number» : «number»)
        («nothing» ?? «number»)
    """,
    "string": """
        («string» + («~number»))
        `«|a|$|é😀»${«~string»}«| b»${«~number»}`
        String(«~number»)
        typeof («~number»)
        («string»).«slice|substring»(«integer»)
        («string»).«slice|substring»(«integer», «integer»)
        («string»).«charAt|at»(«integer»)
        («string»)[«integer»]
        («string»).«trim|trimStart|trimEnd|toUpperCase|toLowerCase|toString»()
        («string»).«replace|replaceAll»(«~string», «~string»)
        («string»).repeat(«0|1|2|3|inputs.count|1.9|null»)
        («string»).«padStart|padEnd»(«0|5|10|index|-1»)
        («string»).«padStart|padEnd»(«0|5|10|index|-1», «~string»)
        («string»).concat(«~string», «~number»)
        («list»).join()
        («list»).join(«~string»)
        («number»).«toFixed|toString»(«|0|2|10»)
        JSON.stringify(«~object»)
        JSON.stringify(«~object», null, «2|inputs.name»)
        («list» + «~string»)
        («boolean» ? «~string» : «string»)
        («strings»).reduce((a, b) => a + b, '')
        encodeURIComponent(«~string»)
        («nothing» || «string»)
    """,
    "boolean": """
        («any» «===|!==|==|!=» «any»)
        («number» «===|!==|==|!=» «~number»)
        («string» «===|!==|==|!=» «~string»)
        («~number» «<|>|<=|>=» «~number»)
        («~string» «<|>|<=|>=» «~string»)
        !(«any»)
        («~boolean» «&&|!!» «~boolean»)
        («string»).«includes|startsWith|endsWith»(«~string»)
        («string»).«includes|startsWith|endsWith»(«~string», «integer»)
        («array»).includes(«any»)
        («array»).includes(«any», «integer»)
        («numbers»).«some|every»(«number→boolean»)
        («objects»).«some|every»(«object→boolean»)
        Array.isArray(«~array»)
        Number.«isInteger|isFinite|isNaN|isSafeInteger»(«~number»)
        «isNaN|isFinite|Boolean»(«~number»)
        ('«a|b|id|name|10»' in «object»)
        («integer» in «numbers»)
        Object.hasOwn(«object», «~string»)
    """,
    "array": """
        [«any», «any»]
        [...«list», «any»]
        [...«string»]
        («array»).slice(«integer»)
        («array»).slice(«integer», «integer»)
        («array»).concat(«~array», «~number»)
        («array»).flat(«|0|1|2|Infinity»)
        («array»).«toReversed|toSorted|slice().sort|concat().reverse»()
        («objects»).map(«object→object»)
        («numbers»).flatMap(«number→array»)
        Object.«entries|values|keys»(«object»)
        Object.«entries|values|keys»(«~object»)
        Object.entries(«object»).map(([k, v]) => «`${k}=${v}`|[v, k]|k + v|({k, v})»)
        («objects»).map(({id, name: called}) => «id|called|`${id}:${called}`|[id, called]»)
        («array»).filter(«Boolean|Number|Array.isArray|isNaN»)
        («array»).map(«String|Number|Boolean|parseInt|Math.floor|Math.max|Array.isArray|Array.of»)
        («array»).map(«any→any»)
        [1, ...«array»].with(«0|-1», «any»)
        Array.from({length: «0|3|inputs.count»}, «nothing,number→number»)
        JSON.parse(inputs.json).k
        JSON.parse(JSON.stringify([«any»]))
    """,
    "numbers": """
        [«~number», «~number»]
        [«number», «number», «~number», «number»]
        («numbers»).map(«number→number»)
        («numbers»).filter(«number→boolean»)
        («numbers»).toSorted((a, b) => «a - b|b - a|a > b|Math.abs(a) - Math.abs(b)»)
        («strings»).map(«string→number»)
        («objects»).map(«object→number»)
        («numbers»).reduceRight((list, v) => [...list, v], [])
    """,
    "strings": """
        [«~string», «~string»]
        [«string», «string», «~string», «string»]
        («string»).split(«~string»)
        («string»).split(«~string», «2|-1|0»)
        («string»).split(«''|','|' '|»)
        («strings»).map(«string→string»)
        («strings»).filter(«string→boolean»)
        («strings»).«toSorted()|toReversed()|slice(1)|flat()»
        («numbers»).map(«number→string»)
    """,
    "objects": """
        [«object», «object»]
        («objects»).filter(«object→boolean»)
        («objects»).map(«object→object»)
    """,
    "object": """
        ({})
        ({«key»: «any», «key»: «any»})
        ({«key»: «any», [«~string»]: «any», «key»: «any»})
        ({...«~object», «key»: «any»})
        Object.fromEntries(Object.entries(«object»))
        Object.assign({}, «~object», {«key»: «any»})
        Object.fromEntries((«strings»).map(k => [k, «any»]))
        («boolean» ? «object» : «object»)
        JSON.parse(inputs.json)
    """,
}
CHOICES = {
    "any": "number number string string boolean boolean array object nothing",
    "list": "array numbers strings",
    "key": "a b c id name x1 '10' '2' '01' 7 'k_k' 1.5 length '-1'",
    "integer": "0 1 2 -1 -2 3 5 1.9 '1' null undefined true NaN",
}
GRAMMAR = {kind: [line.strip() for line in forms.strip().splitlines()] for kind, forms in FORMS.items()}
PLACE = re.compile("«(.*?)»")


class Generator:
    """Draws expressions; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.locals: list[tuple[str, str]] = []
        self.made = 0

    def expression(self, depth: int = 4) -> str:
        """An expression of any kind."""
        return self.of(self.random.choice(["any", "any", "list", "object"]), depth)

    def of(self, kind: str, depth: int) -> str:
        """An expression that usually has this kind."""
        if kind in ("any", "list"):
            kind = self.choice(CHOICES[kind])
        if depth <= 1 or kind not in GRAMMAR or self.random.random() < 0.2:
            return self.simple(kind)
        form = self.random.choice(GRAMMAR[kind])
        return PLACE.sub(lambda place: self.filled(place[1], depth - 1), form)

    def choice(self, words: str) -> str:
        return self.random.choice(words.split())

    def filled(self, place: str, depth: int) -> str:
        """The text for a placeholder of a form."""
        if place in ("key", "integer"):
            return self.choice(CHOICES[place])
        if "→" in place:
            return self.arrow(*place.split("→"), depth)
        if "|" in place:
            return self.random.choice(place.split("|")).replace("!!", "||")
        loose = place[0] == "~" and self.random.random() < 0.2
        return self.of("any" if loose else place.lstrip("~"), depth)

    def simple(self, kind: str) -> str:
        names = [name for name, its in self.locals if its == kind]
        if names and self.random.random() < 0.6:
            return self.random.choice(names)
        if kind == "number" and self.random.random() < 0.2:
            return repr(self.random.random() * 10.0 ** self.random.randint(-30, 30))
        if kind in LITERALS and self.random.random() < 0.5:
            return self.choice(LITERALS[kind]).replace("_", " ")
        return self.choice(KNOWN[kind])

    def arrow(self, elements: str, body: str, depth: int) -> str:
        parameters = [(self.fresh(), kind) for kind in elements.split(",")]
        with self.bound(parameters):
            inner = self.of(body, depth)
        names = [name for name, _ in parameters]
        before = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return f"{before} => {inner}"

    @contextmanager
    def bound(self, parameters: list[tuple[str, str]]) -> Iterator[None]:
        self.locals += parameters
        yield
        del self.locals[-len(parameters) :]

    def fresh(self) -> str:
        self.made += 1
        return f"{self.choice('x y item acc v')}{self.made}"
