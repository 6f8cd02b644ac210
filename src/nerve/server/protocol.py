"""The command protocol under the name that the design documents import; `nerve.api` defines it."""

from nerve.api.command_protocol import Command, CommandType

__all__ = ["Command", "CommandType"]
