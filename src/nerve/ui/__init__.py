"""What all screens share: sanitising, event lines, the progress tree, gate forms and formatting."""
