from nerve import Graph, Session
from nerve.core.nodes.control import BranchNode, GateNode


def register(session: Session) -> None:
    writer, editor = session.nodes["writer"], session.nodes["editor"]
    gate = GateNode("sure", session, "Publish it?", choices=["approve", "reject"])
    edit = BranchNode("edit", session, lambda draft: draft is not None, then_branch=editor)

    graph = Graph("page", session)
    graph.add_step(writer, "write", input_fn=lambda up: f"Write about {up['input']}.")
    graph.add_step(gate, depends_on=["write"])
    graph.add_step(edit, depends_on=["write", "sure"], input_fn=accepted)
    session.register_workflow(graph)


def accepted(up):
    return up["write"]["output"] if up["sure"]["output"] == "approve" else None
