"""The router: natural language in; a workflow, a conversation or a question back out.

Everything it decides by is passed in: the workflows of one project, and the agent that is asked, if any.
"""

from nerve.router.commands import answer_command
from nerve.router.decision import Chosen, Conversation, Decision, Offered, Question
from nerve.router.lines import Listener, parse_router_response
from nerve.router.messages import Messages, messages_of
from nerve.router.names import Ambiguous, match_name
from nerve.router.prompt import build_router_prompt
from nerve.router.routing import route, stream
from nerve.router.session import Router, offers_in, offers_of, project_router, session_router, start

__all__ = [
    "Ambiguous",
    "Chosen",
    "Conversation",
    "Decision",
    "Listener",
    "Messages",
    "Offered",
    "Question",
    "Router",
    "answer_command",
    "build_router_prompt",
    "match_name",
    "messages_of",
    "offers_in",
    "offers_of",
    "parse_router_response",
    "project_router",
    "route",
    "session_router",
    "start",
    "stream",
]
