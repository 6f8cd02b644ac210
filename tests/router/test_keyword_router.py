"""Deciding offline, by words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.router import Candidate, ConversationDecision, Decision, QuestionDecision, WorkflowDecision
from nerve.router.keyword_router import route_by_keywords, score_workflows, stem

WORKFLOWS = [
    Candidate(
        "code-review", "Reviews a change and comments on it. Use when the user wants a second look at a diff."
    ),
    Candidate(
        "feature-development", "Builds a feature from plan to pull request. Use for new functionality."
    ),
    Candidate("deploy", "Ships a version to production"),
    Candidate("fix_bug", "Finds and mends a bug, with a test"),
]
NAMES = [each.name for each in WORKFLOWS]
words = st.sampled_from(
    [
        "code",
        "reviews",
        "deploy",
        "bug",
        "fix",
        "feature",
        "new",
        "version",
        "the",
        "please",
        "not",
        "?",
        "what",
    ]
)
texts = st.lists(words, max_size=8).map(" ".join)


def decide(text: str) -> Decision:
    return route_by_keywords(text, WORKFLOWS)


@pytest.mark.parametrize(
    ("text", "workflow"),
    [
        ("deploy", "deploy"),
        ("run deploy", "deploy"),
        ("code review of my branch", "code-review"),
        ("reviewing the code would be good", "code-review"),
        ("ship version 3 to production and deploy", "deploy"),
        ("there is a bug to fix in the login", "fix_bug"),
        ("I want a new feature: build dark mode", "feature-development"),
    ],
)
def test_the_words_of_a_name_or_description_choose_a_workflow(text: str, workflow: str) -> None:
    decision = decide(text)
    assert isinstance(decision, WorkflowDecision), decision
    assert (decision.workflow, decision.intent, decision.by) == (workflow, text, "words")


@pytest.mark.parametrize(
    ("text", "workflow", "told"),
    [
        ("Deploy the app", "deploy", "the app"),
        (" deploy  version 3 ", "deploy", "version 3"),
        ("please run the code-review on main now", "code-review", "on main now"),
        ("Deploy! The app.", "deploy", "The app."),
        ("deploy .env", "deploy", ".env"),
        ("deploy: now", "deploy", "now"),
        ("Code review: my branch", "code-review", "my branch"),
        ("run deploy:v2", "deploy", "v2"),
        ("start fix_bug: the login is broken", "fix_bug", "the login is broken"),
    ],
)
def test_the_intent_is_the_text_after_the_name(text: str, workflow: str, told: str) -> None:
    decision = decide(text)
    assert isinstance(decision, WorkflowDecision), decision
    assert (decision.workflow, decision.intent, decision.text) == (workflow, told, text)


@pytest.mark.parametrize(
    "text",
    [
        "Deploy!",
        "deploy...",
        "run deploy now",
        "deploy it please",
        "please run the deploy workflow",
        "deploy: !",
    ],
)
def test_the_intent_is_the_whole_message_when_only_filler_follows_the_name(text: str) -> None:
    decision = decide(text)
    assert isinstance(decision, WorkflowDecision), decision
    assert (decision.workflow, decision.intent) == ("deploy", text)


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ("code review and code fix", ("code-fix", "code-review")),
        ("code review and fix", ("code-fix", "code-review")),
        ("run code-review, then deploy", ("code-review", "deploy")),
        ("Deploy, and a codeReview", ("code-review", "deploy")),
        ("code-review and code-review-fast", ("code-review", "code-review-fast")),
        ("start deploy", ("deploy", "start")),
    ],
)
def test_two_names_in_a_text_are_a_question_back(text: str, candidates: tuple[str, ...]) -> None:
    names = ["code-review", "code-fix", "code-review-fast", "deploy", "start"]
    decision = route_by_keywords(text, [Candidate(name) for name in names])
    assert isinstance(decision, QuestionDecision), decision
    assert tuple(sorted(decision.candidates)) == candidates
    assert "the message names several workflows" in decision.question


@pytest.mark.parametrize(
    "text",
    ["deploy: what the code review said", "please run Deploy: code review, new feature, plan, pull request"],
)
def test_names_after_a_colon_belong_to_the_intent(text: str) -> None:
    decision = decide(text)
    assert isinstance(decision, WorkflowDecision), decision
    assert decision.workflow == "deploy"
    assert decision.intent == text.partition(": ")[2]


def test_it_says_that_it_was_decided_offline_and_by_which_words() -> None:
    decision = decide("deploy version 3 with a test")
    assert decision.reason == (
        "decided offline, by words: 'deploy' has 10 (deploy 3, version 1, called by name 6);"
        " next, 'fix_bug' has 1 (test 1)"
    )


@pytest.mark.parametrize(
    ("text", "candidates", "why"),
    [
        ("review the feature", ("code-review", "feature-development"), "several match about equally well"),
        ("I plan to go shopping", ("feature-development",), "the match is too weak (1 of 4 points)"),
        ("what does deploy do", ("deploy",), "the message is a question"),
        ("can you deploy the version?", ("deploy",), "the message is a question"),
        ("don't deploy the version", ("deploy",), "the message may contain a negation"),
        ("good morning", tuple(NAMES), "no word of the message matches a name or a description"),
        ("", tuple(NAMES), "no word of the message matches a name or a description"),
    ],
)
def test_it_asks_when_it_is_unsure_and_says_why(text: str, candidates: tuple[str, ...], why: str) -> None:
    decision = decide(text)
    assert isinstance(decision, QuestionDecision), decision
    assert decision.candidates == candidates
    assert why in decision.question
    assert why in decision.reason
    assert all(f"'{name}'" in decision.question for name in candidates)


def test_without_workflows_there_is_nothing_to_ask() -> None:
    decision = route_by_keywords("deploy", [])
    assert isinstance(decision, ConversationDecision)
    assert "no workflows" in decision.reply


def test_a_name_that_is_part_of_another_is_still_called_by_itself() -> None:
    offered = [Candidate("code-review"), Candidate("code-review-fast")]
    for text, name in [
        ("run code-review on it", "code-review"),
        ("code-review-fast please", "code-review-fast"),
    ]:
        decision = route_by_keywords(text, offered)
        assert isinstance(decision, WorkflowDecision)
        assert decision.workflow == name


def test_a_workflow_whose_name_is_a_command_word_can_be_called() -> None:
    decision = route_by_keywords("run start please", [Candidate("start"), Candidate("stop-it")])
    assert isinstance(decision, WorkflowDecision)
    assert decision.workflow == "start"


@pytest.mark.parametrize("group", [("tests", "testing", "tested", "test"), ("change", "changes", "changing")])
def test_the_forms_of_a_word_are_one(group: tuple[str, ...]) -> None:
    assert len({stem(word) for word in group}) == 1


@given(texts, st.permutations(WORKFLOWS))
def test_the_order_of_the_workflows_decides_nothing(text: str, others: list[Candidate]) -> None:
    one, other = decide(text), route_by_keywords(text, others)
    assert type(one) is type(other)
    if isinstance(one, WorkflowDecision):
        assert isinstance(other, WorkflowDecision)
        assert one.workflow == other.workflow


@given(texts)
def test_what_is_chosen_has_the_most_points_by_far(text: str) -> None:
    decision = decide(text)
    best, second, *_ = score_workflows(text, WORKFLOWS)
    if isinstance(decision, WorkflowDecision):
        assert decision.workflow == best.name
        assert best.points >= 4
        assert second.points < best.points * 0.6


@given(st.text())
def test_any_text_is_decided(text: str) -> None:
    assert isinstance(decide(text), Decision)
