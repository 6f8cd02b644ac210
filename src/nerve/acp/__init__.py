"""An ACP agent: editors start workflows, show their steps and answer their gates."""
