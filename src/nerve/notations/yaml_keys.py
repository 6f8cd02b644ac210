"""The keys of workflows in YAML, except the name of the action of a node."""

WORKFLOW_KEYS = ("name", "description", "provider", "model", "inputs", "limits", "context", "metadata")
NODE_KEYS = (
    *("description", "when", "retry", "timeout", "idle_timeout", "on_error", "effect", "expect"),
    "workspace",
)
AGENT_KEYS = (
    *("provider", "model", "agent", "role", "thread", "args", "output_schema", "permissions"),
    *("tools", "max_turns", "fallback", "limits", "cwd"),
    *("system", "effort", "env", "mcp", "skills", "hooks", "subagents", "instructions"),
)
STEP_KEYS = ("step", "clearContext", "id", *NODE_KEYS, *AGENT_KEYS)
BASH_KEYS = ("env", "cwd", "input")
MERGE_KEYS = ("method", "on_conflict")
GATE_POLICY_KEYS = ("approvers", "quorum", "veto", "self_approval", "author", "claim", "remind", "escalate")
"""The keys of a gate that several people decide."""
GATE_KEYS = ("prompt", "message", "choices", "options", "form", "reject", "default", *GATE_POLICY_KEYS)
