// Signs in this browser with the code in the URL fragment, and lists the runs whenever the page is shown.
"use strict";

const say = (text) => { document.getElementById("status").textContent = text; };

async function signIn(code) {
  history.replaceState(null, "", "/");
  const headers = { "Content-Type": "application/json", "X-Nerve": "1" };
  await fetch("/api/sign-in", { method: "POST", headers, body: JSON.stringify({ code }) });
}

async function show() {
  const reply = await fetch("/api/runs?largest=0");
  const body = await reply.json();
  document.getElementById("runs").replaceChildren(...(body.runs ?? []).map(line));
  if (reply.status === 401) {
    say("This browser is not signed in. Get a new sign-in URL with: nerve server sign-in");
  } else if (!reply.ok) {
    say(`${body.message}. ${body.fix}`);
  } else {
    say(body.runs.length ? "Signed in. The newest runs:" : "Signed in. No runs yet.");
  }
}

function line(run) {
  const item = document.createElement("li");
  item.textContent = `${run.run_id} ${run.workflow}: ${run.state} ${run.waiting_for ?? ""}`.trimEnd();
  return item;
}

const look = () => show().catch(() => say("The server does not respond. Start it with: nerve serve"));

const code = new URLSearchParams(location.hash.slice(1)).get("code");
(code ? signIn(code) : Promise.resolve()).catch(() => {}).then(look);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
