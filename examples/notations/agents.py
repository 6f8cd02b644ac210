from nerve import MockNode, Session


def register(session: Session) -> None:
    MockNode("writer", session, ["Tea is a drink."])
    MockNode("editor", session, ["Tea: hot, and good for you."])
