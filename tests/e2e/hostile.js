// What a page can try against a server at `target` that its visitor is signed in to. Gives what came of it.
async (target) => {
  const body = JSON.stringify({ workflow: "hello", input: "stolen" });
  const within = (seconds, promise) =>
    Promise.race([promise, new Promise((done) => setTimeout(() => done(false), seconds * 1000))]);
  const heard = (source, good, bad) =>
    new Promise((done) => { source[good] = () => done(true); source[bad] = () => done(false); });
  const added = (kind, set) => {
    const made = Object.assign(document.createElement(kind), set);
    const loaded = heard(made, "onload", "onerror");
    document.body.append(made);
    return loaded;
  };
  const post = (given) =>
    fetch(`${target}/api/runs`, { method: "POST", credentials: "include", body, ...given }).then((reply) => reply.ok);
  const json = { "Content-Type": "application/json", "X-Nerve": "1" };
  const tries = {
    read: () => fetch(`${target}/api/runs`, { credentials: "include" }).then((reply) => reply.ok),
    simple: () => post({ headers: { "Content-Type": "text/plain" } }),
    blind: () => post({ mode: "no-cors", headers: { "Content-Type": "text/plain" } }),
    preflighted: () => post({ headers: json }),
    beacon: async () => navigator.sendBeacon(`${target}/api/runs`, body) && false,
    image: () => added("img", { src: `${target}/api/runs` }),
    script: () => added("script", { src: `${target}/api/runs` }),
    style: () => added("link", { rel: "stylesheet", href: `${target}/api/runs` }),
    frame: async () => {
      const frame = Object.assign(document.createElement("iframe"), { src: `${target}/` });
      document.body.append(frame);
      await heard(frame, "onload", "onerror");
      return Boolean(frame.contentDocument && frame.contentDocument.getElementById("status"));
    },
    form: async () => {
      const frame = Object.assign(document.createElement("iframe"), { name: "taken" });
      const form = Object.assign(document.createElement("form"), {
        action: `${target}/api/runs`, method: "POST", enctype: "text/plain", target: "taken",
      });
      const field = Object.assign(document.createElement("input"), {
        name: '{"workflow": "hello", "input": "', value: '"}',
      });
      form.append(field);
      document.body.append(frame, form);
      form.submit();
      await heard(frame, "onload", "onerror");
      return false;
    },
    socket: async () => {
      const socket = new WebSocket(`${target.replace("http", "ws")}/ws`);
      if (!(await heard(socket, "onopen", "onerror"))) return false;
      const reply = new Promise((done) => { socket.onmessage = (each) => done(each.data); socket.onclose = () => done(""); });
      socket.send(JSON.stringify({ id: 1, op: "start", args: JSON.parse(body) }));
      return (await reply).includes('"result"');
    },
    events: () => {
      const source = new EventSource(`${target}/events`, { withCredentials: true });
      return heard(source, "onopen", "onerror").finally(() => source.close());
    },
  };
  const found = {};
  for (const [name, attempt] of Object.entries(tries)) {
    found[name] = await within(5, attempt().catch(() => false));
  }
  return found;
}
