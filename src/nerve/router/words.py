"""Deciding offline: the words of a text against the words of names and descriptions.

A word that stands in a workflow's name counts 3, one in its description 1, each divided by the number of
workflows that have it. That the text begins with the name, or with words like `run` and the name, counts 6.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nerve.router.decision import Chosen, Conversation, Decision, Offered, Question, listed
from nerve.router.names import Ambiguous, match_name

NAME, DESCRIPTION, CALLED = 3.0, 1.0, 6.0
ENOUGH = 4.0
"""Points without which nothing is started."""
CLOSE = 0.6
"""A second one that has this part of the best one's points is as likely meant."""
COMMANDS = frozenset(["run", "start", "launch", "execute", "please", "now", "workflow", "the", "a", "my"])
"""Words before or about a name that say nothing of which one it is."""
STOP = COMMANDS | frozenset(
    re.findall(
        r"\w+",
        """about all an and any are as at be been but by can could did do does for from get go had has have he
        hello her hi his how i if in into is it its just let like make may me more need no not of on or our
        out she should so some than thank thanks that their them then there these they this to up us use used
        user want wants was we were what when where which who why will with would yes you your""",
    )
)
"""Words that stand in any text."""
FILLER = COMMANDS | frozenset(
    ["it", "this", "that", "then", "for", "me", "us", "just", "again", "today", "thank", "thanks", "you"]
)
"""Words behind a name that tell its workflow nothing."""
ASKING = frozenset(["what", "how", "why", "when", "where", "which", "who", "is", "are", "does", "did"])
REFUSING = re.compile(r"\b(?:not|never|without|instead|do(?:es)?n['’]?t|stop|cancel)\b", re.IGNORECASE)

PREFIXED = re.compile(r"\s*%(?P<name>[^\W\d][\w.-]*)(?!\S)(?P<rest>.*)", re.DOTALL)
"""A text that names its workflow: `%name text`."""


@dataclass(frozen=True, slots=True)
class Score:
    """What speaks for a workflow, and how much."""

    name: str
    points: float
    because: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"'{self.name}' has {self.points:.3g}" + (
            f" ({', '.join(self.because)})" if self.because else ""
        )


def decide_by_words(text: str, workflows: Sequence[Offered]) -> Decision:
    """The workflow that the words speak for, or a question when they leave it open."""
    if not workflows:
        nothing = "There are no workflows here to start, and no agent that answers."
        return Conversation(nothing, text=text, by="words", reason="decided offline: there are no workflows")
    best, *others = ranked(text, workflows)
    reason = f"decided offline, by words: {best}"
    reason += f"; next, {others[0]}" if others and others[0].points else ""
    likely, why = doubt(text, best, others)
    if why:
        candidates = likely or tuple(each.name for each in workflows)
        reason = f"{reason}; not started, because {why}"
        return Question(ask(why, candidates), candidates, text, text=text, by="words", reason=reason)
    return Chosen(best.name, said_to(best.name, text), text=text, by="words", reason=reason)


def choose_by_prefix(text: str, workflows: Sequence[Offered]) -> Decision | None:
    """The workflow of a text that begins with `%name`, or a question if there is none; else None."""
    if (named := PREFIXED.fullmatch(text)) is None:
        return None
    name, rest = named["name"], named["rest"].strip()
    names = tuple(each.name for each in workflows)
    reason = "a text that begins with % names its workflow"
    match match_name(name, names):
        case str(meant):
            return Chosen(meant, rest, text=text, by="words", reason=reason)
        case Ambiguous(names):
            asked = f"Several workflows match '{name}'. Which is meant: {listed(names)}?"
        case _ if names:
            asked = f"There is no workflow '{name}'. Which is meant: {listed(names)}?"
        case _:
            asked = f"There is no workflow '{name}', and no other."
    return Question(asked, names, rest, text=text, by="words", reason=reason)


def ranked(text: str, workflows: Sequence[Offered]) -> list[Score]:
    """The points of each workflow, the best first; one that is addressed is before all others."""
    return sorted(scores(text, workflows), key=lambda score: not addressed(text, score.name))


def said_to(name: str, text: str) -> str:
    """What a workflow is told: behind its name, if the text begins with it as a command does, or else all.

    Behind a name without a colon, words like `now` and `please` alone are nothing to tell.
    """
    if addressed(text, name):
        rest = text.partition(":")[2].strip()
        return rest if plain_words(rest) else text
    words = "|".join(sorted(COMMANDS))
    called = rf"\s*(?:(?:{words})\s+)*?{re.escape(name)}(?![\w-])(?:[\s,]|[.;!]+(?=\s|$))*"
    begun = re.match(called, text, re.IGNORECASE)
    rest = text[begun.end() :].rstrip() if begun is not None else text
    return rest if set(plain_words(rest)) - FILLER else text


def addressed(text: str, name: str) -> bool:
    """Whether a text says by a colon that all behind it is for the workflow of that name: `deploy: …`."""
    head, colon, _ = text.partition(":")
    words, own = plain_words(head), plain_words(name)
    return bool(colon and own) and words[-len(own) :] == own and COMMANDS.issuperset(words[: -len(own)])


def named_in(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names that a text has in it, in their order; one that is only part of a longer one is not meant."""
    words = plain_words(text)
    rest = f" {' '.join(words)} "
    found: dict[str, set[str]] = {}
    for name in sorted(names, key=lambda name: -len(plain_words(name))):
        whole = " ".join(plain_words(name))
        if whole and f" {whole} " in rest:
            found[name] = set(whole.split())
            rest = rest.replace(f" {whole} ", " \n ")
    for name in names:
        own = set(plain_words(name))
        # `code review and fix` names code-fix too, though not in one piece.
        if len(own) > 1 and own.issubset(words) and not any(own <= each for each in found.values()):
            found[name] = own
    return tuple(name for name in names if name in found)


def doubt(text: str, best: Score, others: Sequence[Score]) -> tuple[tuple[str, ...], str]:
    """Which ones may be meant, and why the best one is not simply started, or nothing."""
    alone = (best.name,)
    if not best.points:
        return (), "no word of the text is in a name or a description"
    if not addressed(text, best.name):
        if len(named := named_in(text, [each.name for each in (best, *others)])) > 1:
            return named, "the text names several workflows"
        if close := [each.name for each in others if each.points >= best.points * CLOSE]:
            return (*alone, *close), "several fit about as well"
    if text.rstrip().endswith("?") or next(iter(plain_words(text)), "") in ASKING:
        return alone, "the text is a question"
    if REFUSING.search(text):
        return alone, "the text may say what is not wanted"
    if best.points < ENOUGH:
        return alone, f"too little speaks for it ({best.points:.3g} of {ENOUGH:.3g} points)"
    return alone, ""


def ask(why: str, candidates: tuple[str, ...]) -> str:
    offline = f"No agent has decided, and {why}."
    if len(candidates) > 1:
        return f"{offline} Which workflow is meant: {listed(candidates)}?"
    return f"{offline} Is '{candidates[0]}' to be started?"


def scores(text: str, workflows: Sequence[Offered]) -> list[Score]:
    """The points of each workflow, the best first."""
    words = stems(text)
    names = {each.name: stems(each.name) for each in workflows}
    about = {each.name: stems(each.description) - names[each.name] for each in workflows}
    having = Counter(word for name in names for word in names[name] | about[name])
    called = called_by(text, names)
    found = []
    for name in names:
        told = {word: NAME / having[word] for word in words & names[name]}
        told |= {word: DESCRIPTION / having[word] for word in words & about[name]}
        points = sum(told.values()) + (CALLED if name == called else 0.0)
        because = [f"{words_of(text)[word]} {told[word]:.2g}" for word in sorted(told)]
        because += [f"called by name {CALLED:.2g}"] if name == called else []
        found.append(Score(name, points, tuple(because)))
    return sorted(found, key=lambda score: (-score.points, score.name))


def called_by(text: str, names: Collection[str]) -> str | None:
    """The longest name with which the text begins, behind words like `run` and `please`."""
    rest = text.strip().casefold()
    while (first := re.match(r"(\w+)\s+", rest)) and first[1] in COMMANDS:
        if any(begins(rest, name) for name in names):
            break
        rest = rest[first.end() :]
    fitting = [name for name in names if begins(rest, name)]
    return max(fitting, key=len, default=None)


def begins(text: str, name: str) -> bool:
    """Whether a text begins with a name, written as it is or with spaces in it."""
    return any(
        text.startswith(way) and not re.match(r"[\w-]", text[len(way) :])
        for way in (name.casefold(), " ".join(plain_words(name)))
    )


def plain_words(text: str) -> list[str]:
    """The words of a text; `codeReview` and `code_review` are two."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " "))
    return [word.casefold() for word in re.findall(r"\w+", apart)]


def words_of(text: str) -> dict[str, str]:
    """Stems, each with a word that has it."""
    return {stem(word): word for word in plain_words(text) if word not in STOP}


def stems(text: str) -> set[str]:
    return set(words_of(text))


def stem(word: str) -> str:
    """A word without its ending, so that `tests`, `testing` and `test` are one."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
