"""Random tokens and mutated expressions, most of them invalid."""

from __future__ import annotations

import random
import re

from expr.generator import Generator

WORDS = """
    ( ) [ ] { } . , ? : ?. ?? || && ! - + * / % ** === !== == != < > <= >= = => ... ++ -- & | ^ ~ ; in
    typeof new this void delete instanceof null true false undefined NaN Infinity inputs context item index
    inputs.name inputs.numbers 1 0 2.5 .5 5. 1e3 0x1f 07 1_0 1__0 1n 'a' "b" '' `t` `${1}` `${ a => a.length
    map filter( slice( x x=>x (x)=>x (x,y)=>y Math Math.max( JSON.stringify( Object.keys( [1,2] {a:1} ({a:1})
    String( Number length constructor __proto__ // /* <!-- --> \\ # @ \\u0061 \u00e9 \U0001f600 \u200b async
    await of let get
"""
TOKENS = WORDS.split()
PIECES = re.compile(r"\w+|\s+|'[^']*'|[^\w\s]")


def soup(generator: random.Random) -> str:
    """A few random tokens."""
    chosen = [generator.choice(TOKENS) for _ in range(generator.randint(1, 7))]
    return generator.choice([" ", "", " "]).join(chosen)


def mutated(generator: Generator) -> str:
    """A small expression with one or two tokens removed, doubled, swapped or replaced."""
    draw = generator.random
    pieces = PIECES.findall(generator.expression(2))
    for _ in range(draw.randint(1, 2)):
        place = draw.randrange(len(pieces))
        match draw.randrange(4):
            case 0:
                pieces[place] = ""
            case 1:
                pieces[place] *= 2
            case 2:
                other = draw.randrange(len(pieces))
                pieces[place], pieces[other] = pieces[other], pieces[place]
            case _:
                pieces[place] = draw.choice(TOKENS)
    return "".join(pieces)
