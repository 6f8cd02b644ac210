"""The full screen of the Commander; nothing of Textual is imported until it is shown."""
