"""Shell commands with `{{ }}` in them: where a value may be placed, and how it is passed."""
