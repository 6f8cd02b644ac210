"""Route without an agent: match the words of a message against names and descriptions of workflows.

A word in the name of a workflow scores 3, a word in its description 1, each divided by the number of
workflows that contain it. A message that starts with the name, optionally after words like `run`, scores 6
more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from nerve.lazy_dataclass import dataclass
from nerve.router.decision import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
    join_quoted_names,
)


@dataclass(frozen=True, slots=True)
class AmbiguousMatch:
    """Several names match equally well."""

    candidates: tuple[str, ...]


MATCH_TIERS: tuple[Callable[[str, str], bool], ...] = (
    lambda typed, name: name == typed,
    lambda typed, name: name.casefold() == typed.casefold(),
    lambda typed, name: name.casefold().startswith(typed.casefold()),
    lambda typed, name: typed.casefold() in name.casefold(),
)
"""Match rules, strictest first."""


def match_name(typed: str, names: Iterable[str]) -> str | AmbiguousMatch | None:
    """Return the matching name, or all matches of the first rule that matches any, or None."""
    known = list(dict.fromkeys(names))
    for matches_typed in MATCH_TIERS if typed else ():
        matches = [name for name in known if matches_typed(typed, name)]
        if matches:
            return matches[0] if len(matches) == 1 else AmbiguousMatch(tuple(matches))
    return None


NAME_POINTS, DESCRIPTION_POINTS, CALLED_POINTS = 3.0, 1.0, 6.0
MIN_POINTS = 4.0
"""Minimum score to start a workflow."""
CLOSE_RATIO = 0.6
"""A workflow with at least this share of the best score makes the result ambiguous."""
COMMAND_WORDS = frozenset(
    ["run", "start", "launch", "execute", "please", "now", "workflow", "the", "a", "my"]
)
"""Words around a name that do not identify a workflow."""
STOP_WORDS = COMMAND_WORDS | frozenset(
    re.findall(
        r"\w+",
        """about all an and any are as at be been but by can could did do does for from get go had has have he
        hello her hi his how i if in into is it its just let like make may me more need no not of on or our
        out she should so some than thank thanks that their them then there these they this to up us use used
        user want wants was we were what when where which who why will with would yes you your""",
    )
)
"""Common words that are ignored."""
FILLER_WORDS = COMMAND_WORDS | frozenset(
    ["it", "this", "that", "then", "for", "me", "us", "just", "again", "today", "thank", "thanks", "you"]
)
"""Words after a name that are not an intent."""
QUESTION_WORDS = frozenset(
    ["what", "how", "why", "when", "where", "which", "who", "is", "are", "does", "did"]
)
NEGATION_PATTERN = re.compile(
    r"\b(?:not|never|without|instead|do(?:es)?n['’]?t|stop|cancel)\b", re.IGNORECASE
)

PREFIX_PATTERN = re.compile(r"\s*%(?P<name>[^\W\d][\w.-]*)(?!\S)(?P<rest>.*)", re.DOTALL)
"""A message that names its workflow: `%name text`."""


@dataclass(frozen=True, slots=True)
class WorkflowScore:
    """The score of a workflow and the reasons for it."""

    name: str
    points: float
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"'{self.name}' has {self.points:.3g}" + (
            f" ({', '.join(self.reasons)})" if self.reasons else ""
        )


def route_by_keywords(text: str, workflows: Sequence[Candidate]) -> Decision:
    """Return the workflow with the best score, or a question if the result is not clear."""
    if not workflows:
        reply = "This project has no workflows to start, and no agent to reply."
        return ConversationDecision(
            reply, text=text, by="words", reason="decided offline: the project has no workflows"
        )
    # A workflow that the message addresses precedes all others.
    best, *others = sorted(
        score_workflows(text, workflows), key=lambda score: not is_addressed_to(text, score.name)
    )
    reason = f"decided offline, by words: {best}"
    reason += f"; next, {others[0]}" if others and others[0].points else ""
    likely, why = find_doubt(text, best, others)
    if why:
        candidates = likely or tuple(workflow.name for workflow in workflows)
        reason = f"{reason}; not started, because {why}"
        return QuestionDecision(
            doubt_question(why, candidates), candidates, text, text=text, by="words", reason=reason
        )
    return WorkflowDecision(
        best.name, intent_after_name(best.name, text), text=text, by="words", reason=reason
    )


def choose_by_prefix(text: str, workflows: Sequence[Candidate]) -> Decision | None:
    """Return the decision for a message that starts with `%name`, or None for another message."""
    if (prefix_match := PREFIX_PATTERN.fullmatch(text)) is None:
        return None
    name, rest = prefix_match["name"], prefix_match["rest"].strip()
    names = tuple(workflow.name for workflow in workflows)
    reason = "a message that starts with % names its workflow"
    match match_name(name, names):
        case str(matched_name):
            return WorkflowDecision(matched_name, rest, text=text, by="words", reason=reason)
        case AmbiguousMatch(names):
            question = f"Several workflows match '{name}'. Did you mean {join_quoted_names(names)}?"
        case _ if names:
            question = f"Unknown workflow '{name}'. Did you mean {join_quoted_names(names)}?"
        case _:
            question = f"Unknown workflow '{name}'. The project has no workflows."
    return QuestionDecision(question, names, rest, text=text, by="words", reason=reason)


def intent_after_name(name: str, text: str) -> str:
    """Return the intent: the text after the name if the message starts with it, else the whole message.

    Without a colon after the name, words like `now` and `please` alone are not an intent.
    """
    if is_addressed_to(text, name):
        rest = text.partition(":")[2].strip()
        return rest if plain_words(rest) else text
    words = "|".join(sorted(COMMAND_WORDS))
    pattern = rf"\s*(?:(?:{words})\s+)*?{re.escape(name)}(?![\w-])(?:[\s,]|[.;!]+(?=\s|$))*"
    match = re.match(pattern, text, re.IGNORECASE)
    rest = text[match.end() :].rstrip() if match is not None else text
    return rest if set(plain_words(rest)) - FILLER_WORDS else text


def is_addressed_to(text: str, name: str) -> bool:
    """Whether a message addresses a workflow with a colon: `deploy: …`."""
    head, colon, _ = text.partition(":")
    words, own = plain_words(head), plain_words(name)
    return bool(colon and own) and words[-len(own) :] == own and COMMAND_WORDS.issuperset(words[: -len(own)])


def names_in_text(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in a message, in the order of `names`, without names inside a longer match."""
    words = plain_words(text)
    rest = f" {' '.join(words)} "
    words_by_name: dict[str, set[str]] = {}
    for name in sorted(names, key=lambda name: -len(plain_words(name))):
        phrase = " ".join(plain_words(name))
        if phrase and f" {phrase} " in rest:
            words_by_name[name] = set(phrase.split())
            rest = rest.replace(f" {phrase} ", " \n ")
    for name in names:
        own = set(plain_words(name))
        # `code review and fix` also names code-fix, although its words are not adjacent.
        if (
            len(own) > 1
            and own.issubset(words)
            and not any(own <= name_words for name_words in words_by_name.values())
        ):
            words_by_name[name] = own
    return tuple(name for name in names if name in words_by_name)


def find_doubt(
    text: str, best: WorkflowScore, others: Sequence[WorkflowScore]
) -> tuple[tuple[str, ...], str]:
    """Return the likely workflows, and why the best one is not started; an empty reason starts it."""
    alone = (best.name,)
    if not best.points:
        return (), "no word of the message matches a name or a description"
    if not is_addressed_to(text, best.name):
        if len(names := names_in_text(text, [score.name for score in (best, *others)])) > 1:
            return names, "the message names several workflows"
        if close := [score.name for score in others if score.points >= best.points * CLOSE_RATIO]:
            return (*alone, *close), "several match about equally well"
    if text.rstrip().endswith("?") or next(iter(plain_words(text)), "") in QUESTION_WORDS:
        return alone, "the message is a question"
    if NEGATION_PATTERN.search(text):
        return alone, "the message may contain a negation"
    if best.points < MIN_POINTS:
        return alone, f"the match is too weak ({best.points:.3g} of {MIN_POINTS:.3g} points)"
    return alone, ""


def doubt_question(why: str, candidates: tuple[str, ...]) -> str:
    explanation = f"No agent decided, and {why}."
    if len(candidates) > 1:
        return f"{explanation} Which workflow do you mean: {join_quoted_names(candidates)}?"
    return f"{explanation} Start '{candidates[0]}'?"


def score_workflows(text: str, workflows: Sequence[Candidate]) -> list[WorkflowScore]:
    """Return the score of each workflow, best first."""
    words = stems(text)
    names = {workflow.name: stems(workflow.name) for workflow in workflows}
    about = {workflow.name: stems(workflow.description) - names[workflow.name] for workflow in workflows}
    having = Counter(word for name in names for word in names[name] | about[name])
    named_workflow = leading_name(text, names)
    results = []
    for name in names:
        points_by_word = {word: NAME_POINTS / having[word] for word in words & names[name]}
        points_by_word |= {word: DESCRIPTION_POINTS / having[word] for word in words & about[name]}
        points = sum(points_by_word.values()) + (CALLED_POINTS if name == named_workflow else 0.0)
        reasons = [
            f"{words_by_stem(text)[word]} {points_by_word[word]:.2g}" for word in sorted(points_by_word)
        ]
        reasons += [f"called by name {CALLED_POINTS:.2g}"] if name == named_workflow else []
        results.append(WorkflowScore(name, points, tuple(reasons)))
    return sorted(results, key=lambda score: (-score.points, score.name))


def leading_name(text: str, names: Collection[str]) -> str | None:
    """Return the longest name that the message starts with, after words like `run` and `please`."""
    rest = text.strip().casefold()
    while (first := re.match(r"(\w+)\s+", rest)) and first[1] in COMMAND_WORDS:
        if any(starts_with_name(rest, name) for name in names):
            break
        rest = rest[first.end() :]
    matches = [name for name in names if starts_with_name(rest, name)]
    return max(matches, key=len, default=None)


def starts_with_name(text: str, name: str) -> bool:
    """Whether a text starts with a name, spelled exactly or with spaces."""
    return any(
        text.startswith(spelling) and not re.match(r"[\w-]", text[len(spelling) :])
        for spelling in (name.casefold(), " ".join(plain_words(name)))
    )


def plain_words(text: str) -> list[str]:
    """Return the words of a text; `codeReview` and `code_review` are two words."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " "))
    return [word.casefold() for word in re.findall(r"\w+", apart)]


def words_by_stem(text: str) -> dict[str, str]:
    """Return the words of a text by stem."""
    return {stem(word): word for word in plain_words(text) if word not in STOP_WORDS}


def stems(text: str) -> set[str]:
    return set(words_by_stem(text))


def stem(word: str) -> str:
    """Return a word without its suffix, so that `tests`, `testing` and `test` match."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
