"""Any agent that speaks the Agent Client Protocol, driven over its pipes."""

from nerve.agents.acp.provider import AcpProvider

__all__ = ["AcpProvider"]
