"""The same as a graph, with the policies at its steps."""

from typing import Any

from nerve import Graph, Retry, Session
from nerve.core.nodes.control import BranchNode


def register(session: Session) -> None:
    node = session.get_node
    graph = Graph("failures", session)

    def nothing(up: dict[str, Any]) -> Any:
        return {"input": up["input"], "context": {}}

    def printing(up: dict[str, Any]) -> Any:
        results = {"fetch": up["fetch"].output}
        return {"input": up["input"], "context": results, **results}

    many = BranchNode("many", session, lambda given: given["pages"] > 10, node("archivist"))
    graph.add_step(node("fetcher"), "fetch", (), nothing, retry=Retry(attempts=3, delay=0))
    graph.add_step(node("painter"), "paint", ["fetch"], nothing, on_error=node("sketcher"))
    graph.add_step(node("counter"), "count", ["paint"], nothing, on_error="skip")
    graph.add_step(many, "archive", ["fetch", "count"], lambda up: up["fetch"].output)
    graph.add_step(node("printer"), "print", ["fetch", "archive"], printing)
    session.register_workflow(graph)
