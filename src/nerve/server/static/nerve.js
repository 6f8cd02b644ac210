// Signs this browser in with the code behind the #, and lists the runs.
"use strict";

const say = (text) => { document.getElementById("told").textContent = text; };

async function signIn(code) {
  history.replaceState(null, "", "/");
  const headers = { "Content-Type": "application/json", "X-Nerve": "1" };
  const reply = await fetch("/api/sign-in", { method: "POST", headers, body: JSON.stringify({ code }) });
  return reply.ok;
}

async function show() {
  const reply = await fetch("/api/runs");
  if (!reply.ok) {
    say("This browser is not signed in. Use a new address from the server.");
    return;
  }
  const { runs } = await reply.json();
  say(runs.length ? "Signed in. The newest runs:" : "Signed in. There are no runs yet.");
  for (const run of runs) {
    const item = document.createElement("li");
    item.textContent = `${run.run_id} ${run.workflow}: ${run.state}`;
    document.getElementById("runs").append(item);
  }
}

const code = new URLSearchParams(location.hash.slice(1)).get("code");
(code ? signIn(code) : Promise.resolve()).then(show);
