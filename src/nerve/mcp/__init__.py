"""An MCP server: agents and other programs list, start and follow the workflows of a project."""
