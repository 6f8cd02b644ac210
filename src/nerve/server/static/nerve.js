// Signs this browser in with the code behind the #, and lists the runs, again whenever somebody comes back to it.
"use strict";

const say = (text) => { document.getElementById("told").textContent = text; };

async function signIn(code) {
  history.replaceState(null, "", "/");
  const headers = { "Content-Type": "application/json", "X-Nerve": "1" };
  await fetch("/api/sign-in", { method: "POST", headers, body: JSON.stringify({ code }) });
}

async function show() {
  const reply = await fetch("/api/runs?largest=0");
  const told = await reply.json();
  document.getElementById("runs").replaceChildren(...(told.runs ?? []).map(line));
  if (reply.status === 401) {
    say("This browser is not signed in. Use a new address from the server.");
  } else if (!reply.ok) {
    say(`${told.message}. ${told.fix}`);
  } else {
    say(told.runs.length ? "Signed in. The newest runs:" : "Signed in. There are no runs yet.");
  }
}

function line(run) {
  const item = document.createElement("li");
  item.textContent = `${run.run_id} ${run.workflow}: ${run.state}`;
  return item;
}

const look = () => show().catch(() => say("The server does not answer. It is started with: nerve serve"));

const code = new URLSearchParams(location.hash.slice(1)).get("code");
(code ? signIn(code) : Promise.resolve()).catch(() => {}).then(look);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
