// Theme, relative times, keyboard, confirmation, copying, selection, saved views, notifications and sign-in.
// Everything on a page also works without it, except signing in and live changes.
"use strict";

const root = document.documentElement;
const find = (selector, from = document) => from.querySelector(selector);
const findAll = (selector, from = document) => [...from.querySelectorAll(selector)];
const stored = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
const store = (key, value) => { try { localStorage.setItem(key, value); } catch { /* private window */ } };

// -- theme: before the page is drawn -------------------------------------------------------------
if (stored("nerve.theme")) root.dataset.theme = stored("nerve.theme");

function switchTheme() {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  store("nerve.theme", root.dataset.theme);
}

// -- times ---------------------------------------------------------------------------------------
function formatAgo(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (Math.abs(seconds) >= size) {
      const count = `${Math.floor(Math.abs(seconds) / size)}${unit}`;
      return seconds > 0 ? `${count} ago` : `in ${count}`;
    }
  }
  return "now";
}

function formatDuration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  if (seconds < 60) return `${Math.round(seconds)}s`;
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  const pad = (number) => String(number).padStart(2, "0");
  if (minutes < 60) return `${minutes}m ${pad(Math.floor(seconds % 60))}s`;
  return hours < 48 ? `${hours}h ${pad(minutes % 60)}m` : `${Math.floor(hours / 24)}d`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function updateTimes() {
  const now = Date.now();
  for (const element of findAll("time[data-relative]")) {
    const moment = Date.parse(element.dateTime);
    setText(element, formatAgo((now - moment) / 1000));
    if (!element.dataset.local) {
      element.title = element.dataset.local = new Date(moment).toLocaleString(undefined, { dateStyle: "full", timeStyle: "medium" });
    }
  }
  for (const element of findAll("[data-since]")) {
    setText(element, formatDuration(Math.max(0, (now - Date.parse(element.dataset.since)) / 1000)));
  }
}

// -- what can be scrolled can be reached by keyboard ----------------------------------------------
function focusScrollable() {
  for (const element of findAll("main pre, main li > code, main .scroll")) {
    const isWide = element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible";
    const canFocus = isWide || element.scrollHeight > element.clientHeight + 1 && getComputedStyle(element).overflowY === "auto";
    if (canFocus && !element.hasAttribute("tabindex") && !find("a, button, input, summary", element)) element.tabIndex = 0;
  }
}

let focusTimer = 0;
function focusScrollableSoon() {  // layout is measured, so not after every swap of a busy page
  clearTimeout(focusTimer);
  focusTimer = setTimeout(focusScrollable, 300);
}

// -- keyboard ------------------------------------------------------------------------------------
let pendingPrefix = "", currentRowId = "";

function markCurrentRow() {  // the server does not know it, so an update of the list removes the mark
  const row = currentRowId && document.getElementById(currentRowId);
  if (row && !find("[data-row].current")) row.classList.add("current");
}

function moveRow(step) {
  const rows = findAll("[data-row]");
  if (!rows.length) return;
  const index = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, index < 0 ? 0 : index + step))];
  rows.forEach((row) => row.classList.toggle("current", row === next));
  currentRowId = next.id;
  next.scrollIntoView({ block: "nearest" });
  (find("[data-open]", next) ?? next).focus({ preventScroll: true });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const current = find("[data-row].current");
  const link = pendingPrefix === "g" ? find(`nav [data-key="${CSS.escape(event.key)}"]`) : null;
  pendingPrefix = event.key === "g" ? "g" : "";
  if (link) link.click();
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "Enter" && current && event.target === document.body) find("[data-open]", current)?.click();
  else if (event.key === "x" && current) find("input[type=checkbox]", current)?.click();
  else if (/^[1-9]$/.test(event.key) && find(`[data-answer="${event.key}"]`)) find(`[data-answer="${event.key}"]`).focus();
  else if (event.key === "/") find("[data-search]")?.focus();
  else if (event.key === "f" && find("[data-follow]")) find("[data-follow]").click();
  else if (event.key === "Escape" && find("[data-close-pane]")) find("[data-close-pane]").click();
  else if (event.key === "?") find("#help")?.showModal();
  else return;
  event.preventDefault();
}

// -- confirmation: the button is pressed again when the user has agreed ----------------------------
let agreed = null;

function askBefore(button, event) {
  if (agreed === button) { agreed = null; return; }
  const dialog = find("#confirm");
  event.preventDefault();
  event.stopPropagation();
  setText(find("#confirm-text"), button.dataset.confirm);
  dialog.returnValue = "";
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") { agreed = button; button.click(); }
  }, { once: true });
}

// -- selection of several rows -------------------------------------------------------------------
function updateSelection() {
  updateCommonAnswers();
  for (const form of findAll("[data-bulk]")) {
    const boxes = findAll("[data-row] input[type=checkbox]", form), picked = boxes.filter((box) => box.checked).length;
    const counter = find("[data-bulk-count]", form), all = find("[data-pick-all]", form);
    const isAll = find("[data-pick-matching]", form)?.checked;
    if (counter) setText(counter, isAll ? "All that match selected" : `${picked} selected`);
    if (all) { all.checked = picked > 0 && picked === boxes.length; all.indeterminate = picked > 0 && picked < boxes.length; }
  }
}

// -- answers for several gates: only those that all selected gates accept ---------------------------
function updateCommonAnswers() {
  for (const form of findAll("[data-bulk-answers]")) {
    const rows = findAll("[data-row]", form).filter((row) => find("input[type=checkbox]", row)?.checked);
    const accepted = rows.map((row) => JSON.parse(row.dataset.answers));
    const buttons = findAll("button[name=choice]", form);
    for (const button of buttons) button.hidden = !accepted.every((answers) => answers.includes(button.value));
    const hint = find("[data-no-common]", form);
    if (hint) hint.hidden = buttons.some((button) => !button.hidden);
  }
}

// -- forms: a file fills a field, Enter sends a message, and a second click on a button has no effect -
function showScripted() {
  findAll("[data-scripted]").forEach((element) => { element.hidden = false; });
}

async function readFileInto(input) {
  const field = document.getElementById(input.dataset.fileInto), file = input.files[0];
  if (!field || !file) return;
  if (file.size > 900000) { field.setCustomValidity("The file is larger than 900 KB."); field.reportValidity(); return; }
  field.setCustomValidity("");
  field.value = await file.text();
}

function ignoreSecondSubmit(event) {
  const form = event.target;
  if (!form.matches("[data-once], [data-answer-form]") || event.submitter?.formNoValidate) return;
  if (form.dataset.sent && Date.now() - form.dataset.sent < 3000) event.preventDefault();
  else form.dataset.sent = Date.now();
}

// -- saved views: names of query strings, in this browser ----------------------------------------
function showViews() {
  for (const place of findAll("[data-views]")) {
    const key = `nerve.views.${place.dataset.views}`, views = JSON.parse(stored(key) ?? "{}");
    const save = (changed) => { store(key, JSON.stringify(changed)); showViews(); };
    const items = Object.entries(views).map(([name, query]) => {
      const item = document.createElement("span"), link = document.createElement("a"), remove = document.createElement("button");
      item.className = "view";
      link.href = location.pathname + query;
      link.textContent = name;
      remove.type = "button";
      remove.className = "quiet square";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Remove the view ${name}`);
      remove.addEventListener("click", () => { const { [name]: _, ...rest } = views; save(rest); });
      item.append(link, remove);
      return item;
    });
    if (location.search && !Object.values(views).includes(location.search)) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "quiet";
      button.textContent = "Save view";
      button.addEventListener("click", () => {
        const name = prompt("Name of this view");
        if (name) save({ ...views, [name]: location.search });
      });
      items.push(button);
    }
    place.replaceChildren(...items);
  }
}

// -- notifications: a page in the background asks for the number of open gates -------------------
let lastCount = 0;
const countOf = (badge) => parseInt(badge?.dataset.count, 10) || 0;

function noticeGates() {
  const count = countOf(find("#inbox-badge"));
  if (count > lastCount && document.hidden && "Notification" in window && Notification.permission === "granted") {
    new Notification("Nerve", { body: count === 1 ? "A run waits for your answer." : `${count} gates wait for an answer.`, tag: "nerve-inbox" });
  }
  lastCount = count;
}

async function pollBadge() {
  if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
  const reply = await fetch(document.body.dataset.badge).catch(() => null);
  const badge = find("#inbox-badge");
  if (!reply?.ok || !badge) return;
  const parsed = new DOMParser().parseFromString(await reply.text(), "text/html");
  badge.replaceWith(find("#inbox-badge", parsed));
  noticeGates();
}

function offerNotifications() {
  const button = find("[data-notify]");
  if (!button || !("Notification" in window) || Notification.permission !== "default") return;
  button.hidden = false;
  button.addEventListener("click", async () => { await Notification.requestPermission(); button.hidden = true; });
}

// -- connection ----------------------------------------------------------------------------------
function showConnection(isLost) {
  const place = find(".connection");
  if (place) setText(place, isLost ? "Reconnecting …" : "");
}

// The SSE extension aborts a stream before it cancels its reader, and does not handle that this then fails.
function watchReader(connection) {
  let reader = connection.reader;
  Object.defineProperty(connection, "reader", {
    configurable: true,
    get: () => reader,
    set: (opened) => {
      reader = opened;
      const cancel = opened?.cancel.bind(opened);
      if (opened) opened.cancel = () => cancel().catch(() => {});
    },
  });
}

// -- sign-in: the code is in the fragment, which browsers do not send ----------------------------
async function signIn() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  const { home } = document.body.dataset, isPlain = document.body.matches(".plain");
  const headers = { "Content-Type": "application/json", "X-Nerve": "1" };
  const reply = await fetch(`${home}api/sign-in`, { method: "POST", headers, body: JSON.stringify({ code }) }).catch(() => null);
  if (!isPlain) return;  // it was signed in already
  if (reply?.ok) location.replace(location.pathname + location.search);  // as a link of this site
  else setText(find("#status") ?? find("main p"), reply ? "This address was already used or is too old." : "The server does not respond.");
}

// -- a run: the selected step, and the newest one ------------------------------------------------
function markSelected() {
  for (const row of findAll("[data-timeline] [data-row]")) {
    const link = find("[data-open][hx-get]", row), isSelected = link?.pathname === location.pathname;
    row.classList.toggle("selected", isSelected);
    if (isSelected) link.setAttribute("aria-current", "true"); else link?.removeAttribute("aria-current");
  }
}

function followNewest() {
  const pane = find("#pane"), writing = find("#transcript .writing");
  if (pane && writing && find("[data-follow]")?.checked) {
    pane.scrollTop += Math.max(0, writing.getBoundingClientRect().bottom - pane.getBoundingClientRect().bottom + 24);
  }
  const timeline = find("[data-timeline]"), rows = findAll("[data-row].running, [data-row].waiting", timeline ?? document);
  if (!timeline || !find("[data-follow]")?.checked || !rows.length) return;
  const row = rows[rows.length - 1], bottom = row.offsetTop - timeline.offsetTop + row.offsetHeight;
  if (bottom > timeline.scrollTop + timeline.clientHeight) timeline.scrollTop = bottom - timeline.clientHeight;
  timeline.scrollLeft = timeline.scrollWidth;
}

// -- a part of the time axis: dragged over, and shown alone ------------------------------------------
let dragStart = null;  // where a drag over the axis began, as a fraction of its width

function axisFraction(axis, event) {
  const place = axis.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - place.left) / place.width));
}

function timeAt(parts, x) {  // folded parts of the axis have another scale
  const [start, end, left, width] = parts.findLast((part) => part[2] <= x) ?? parts[0];
  return start + (end - start) * Math.min(1, (x - left) / width);
}

function markSpan(axis, from, to) {
  const mark = find(".span-mark", axis) ?? axis.appendChild(document.createElementNS(axis.namespaceURI, "rect"));
  mark.setAttribute("class", "span-mark");
  mark.setAttribute("x", `${100 * Math.min(from, to)}%`);
  mark.setAttribute("width", `${100 * Math.abs(to - from)}%`);
}

function showSpan(axis, from, to) {
  const parts = JSON.parse(axis.dataset.axis), query = new URLSearchParams(location.search);
  query.set("from", timeAt(parts, Math.min(from, to)).toFixed(3));
  query.set("to", timeAt(parts, Math.max(from, to)).toFixed(3));
  location.search = query;
}

document.addEventListener("pointerdown", (event) => {
  const axis = event.target.closest("[data-axis]");
  if (!axis || event.button) return;
  dragStart = axisFraction(axis, event);
  event.preventDefault();
});
document.addEventListener("pointermove", (event) => {
  if (dragStart !== null) markSpan(find("[data-axis]"), dragStart, axisFraction(find("[data-axis]"), event));
});
document.addEventListener("pointerup", (event) => {
  const axis = find("[data-axis]"), from = dragStart;
  dragStart = null;
  if (from === null || !axis) return;
  const to = axisFraction(axis, event);
  if (Math.abs(to - from) > 0.01) showSpan(axis, from, to); else find(".span-mark", axis)?.remove();
});

// -- start ---------------------------------------------------------------------------------------
document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-theme-switch], [data-help], [data-dismiss], [data-copy], [data-confirm], [data-pick-all]");
  if (!target) return;
  if (target.matches("[data-theme-switch]")) switchTheme();
  else if (target.matches("[data-help]")) find("#help").showModal();
  else if (target.matches("[data-dismiss]")) target.closest("[data-notice]").remove();
  else if (target.matches("[data-copy]")) {
    navigator.clipboard.writeText(target.dataset.copy).then(() => {
      const label = target.textContent;
      setText(target, "Copied");
      setTimeout(() => setText(target, label), 1500);
    });
  } else if (target.matches("[data-confirm]")) askBefore(target, event);
  else {
    findAll("[data-row] input[type=checkbox]", target.closest("[data-bulk]")).forEach((box) => { box.checked = target.checked; });
    updateSelection();
  }
}, true);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !event.target.matches("[data-submit-on-enter]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});
document.addEventListener("submit", ignoreSecondSubmit, true);
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-file-into]")) readFileInto(event.target);
  if (event.target.matches("[data-follow]")) { store("nerve.follow", event.target.checked ? "1" : "0"); followNewest(); }
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  if (event.target.matches("[data-go]")) {  // shows the same page for what was chosen
    const chosen = findAll("[data-go]", event.target.form).filter((field) => field.value && !field.disabled);
    location.search = new URLSearchParams(chosen.map((field) => [field.name, field.value])).toString();
  }
  updateSelection();
});
document.addEventListener("submit", (event) => {
  for (const field of findAll("input, select", event.target)) {
    if (event.target.method === "get" && !field.value) field.disabled = true;  // a short address
  }
});
document.addEventListener("htmx:sse:after:connection", (event) => watchReader(event.detail.connection));
document.addEventListener("htmx:sse:error", () => showConnection(true));
document.addEventListener("htmx:sse:after:connection", () => showConnection(false));
// The SSE extension connects again only after it has been connected once: the server may end before that.
document.addEventListener("htmx:error", ({ target }) => {
  const address = target.getAttribute?.("hx-sse:connect");
  if (!address) return;
  showConnection(true);
  setTimeout(() => { if (target.isConnected) htmx.ajax("GET", address, { source: target }); }, 1000);
});
// Once for all changes before the page is drawn again, since some of it measures the layout.
let refreshing = 0;
document.addEventListener("htmx:after:swap", () => {
  noticeGates();  // also of a page in the background, which is not drawn
  markCurrentRow();
  refreshing ||= requestAnimationFrame(() => { refreshing = 0; updateTimes(); focusScrollableSoon(); updateSelection(); followNewest(); showScripted(); });
});
document.addEventListener("htmx:after:history:push", () => { markSelected(); if (matchMedia("(max-width: 1060px)").matches) find("[data-pane]")?.scrollIntoView(); });
document.addEventListener("click", (event) => findAll("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; }));
document.addEventListener("DOMContentLoaded", () => {
  lastCount = countOf(find("#inbox-badge"));
  updateTimes();
  focusScrollable();
  updateSelection();
  showViews();
  showScripted();
  find(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  offerNotifications();
  signIn();
  const follow = find("[data-follow]");
  if (follow) follow.checked = stored("nerve.follow") !== "0";
  followNewest();
  setInterval(updateTimes, 1000);
  setInterval(pollBadge, 30000);
  new MutationObserver((changes) => {
    for (const notice of changes.flatMap((change) => [...change.addedNodes])) {
      if (notice.matches?.("[data-notice]:not(.bad)")) setTimeout(() => notice.remove(), 6000);
    }
  }).observe(find("#notices") ?? document.body, { childList: true });
});
addEventListener("pageshow", () => findAll("form [disabled]").forEach((field) => { if (field.matches("input, select")) field.disabled = false; }));
