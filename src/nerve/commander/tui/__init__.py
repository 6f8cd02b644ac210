"""The full-screen mode of the Commander; Textual is imported only when it starts."""
