"""The same as a graph of control nodes: what a node gives flows into the next."""

from nerve import Graph, Session
from nerve.core.nodes.control import MapNode, ParallelNode, ReduceNode


def register(session: Session) -> None:
    node = session.get_node
    graph = Graph("fan_out", session)
    graph.chain(
        node("splitter"),
        MapNode("research", session, node("researcher")),
        ReduceNode("whole", session, lambda whole, part: f"{whole} + {part}" if whole else part, ""),
        ParallelNode("judges", session, {"critic": node("critic"), "friend": node("friend")}),
        node("writer"),
    )
    session.register_workflow(graph)
