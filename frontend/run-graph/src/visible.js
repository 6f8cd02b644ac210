// What is visible of a graph while some of its groups are collapsed.

/** Index the nodes of the data by id, and their members by group; "" has the nodes outside of groups. */
export function indexGraph(data) {
  const nodes = new Map(data.nodes.map((node) => [node.id, node]));
  const members = new Map([["", []]]);
  for (const node of data.nodes) {
    const parent = nodes.has(node.parent) ? node.parent : "";
    if (!members.has(parent)) members.set(parent, []);
    members.get(parent).push(node);
  }
  return { nodes, members };
}

/** Return the ids from the outermost visible ancestor of a node to the node or its collapsed ancestor. */
function visiblePath(id, nodes, collapsed) {
  const path = [];
  for (let node = nodes.get(id); node; node = nodes.get(node.parent)) path.unshift(node.id);
  const hidden = path.findIndex((each) => collapsed.has(each));
  return hidden < 0 ? path : path.slice(0, hidden + 1);
}

/**
 * Return the edges by the group in which they are drawn: between the two members of the innermost group
 * that contains both ends. Edges between the same members are one, with all their labels.
 */
export function visibleEdges(data, nodes, collapsed) {
  const levels = new Map();
  const paths = new Map();
  const pathOf = (id) => {
    if (!paths.has(id)) paths.set(id, visiblePath(id, nodes, collapsed));
    return paths.get(id);
  };
  for (const [start, end, label, kind] of data.edges) {
    const from = pathOf(start);
    const to = pathOf(end);
    let depth = 0;
    while (depth < from.length - 1 && depth < to.length - 1 && from[depth] === to[depth]) depth += 1;
    const [a, b] = [from[depth], to[depth]];
    if (!a || !b || (a === b && start !== end)) continue;
    const parent = depth ? from[depth - 1] : "";
    if (!levels.has(parent)) levels.set(parent, new Map());
    const key = JSON.stringify([a, b]);
    const edge = levels.get(parent).get(key);
    if (!edge) levels.get(parent).set(key, { start: a, end: b, label: label || "", kind: kind || "" });
    else {
      if (label && !edge.label.split(" / ").includes(label)) edge.label += (edge.label && " / ") + label;
      if (!kind) edge.kind = "";
    }
  }
  return levels;
}
