"""The router: decides whether a message starts a workflow, gets a reply, or needs a question.

Callers pass in everything it uses: the workflows of one project, and optionally an agent.
"""

from nerve.router.agent_answer import MarkerScanner, parse_router_response
from nerve.router.chat_commands import answer_command
from nerve.router.decision import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
)
from nerve.router.keyword_router import AmbiguousMatch, match_name
from nerve.router.project_routing import (
    candidates_of,
    offers_in,
    project_router,
    session_router,
    start,
)
from nerve.router.prompt import build_router_prompt
from nerve.router.routing import Router, route, stream
from nerve.router.run_messages import RunMessages, messages_of

__all__ = [
    "AmbiguousMatch",
    "Candidate",
    "ConversationDecision",
    "Decision",
    "MarkerScanner",
    "QuestionDecision",
    "Router",
    "RunMessages",
    "WorkflowDecision",
    "answer_command",
    "build_router_prompt",
    "candidates_of",
    "match_name",
    "messages_of",
    "offers_in",
    "parse_router_response",
    "project_router",
    "route",
    "session_router",
    "start",
    "stream",
]
