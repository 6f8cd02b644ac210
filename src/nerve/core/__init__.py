"""The core: nodes, workflows and values. It decides what is executed; only leaves have side effects."""
