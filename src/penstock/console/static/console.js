// The console's only script: live parts, local times, the page of messages, keys. No library, and nothing from outside.
// HTML comes from our own server, which escapes everything it did not write itself.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- Times: the server writes UTC, which stays in the tooltip.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

function localTimes(root) {
  for (const each of $$("time[datetime]", root)) {
    const at = new Date(each.dateTime);
    if (each.dateTime && !isNaN(at)) {
      const two = (number) => String(number).padStart(2, "0");
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      each.textContent =
        `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.` +
        String(at.getMilliseconds()).padStart(3, "0");
    }
  }
  for (const each of $$("text[data-at]", root)) {
    each.textContent = ("seconds" in each.dataset ? seconds : clock).format(new Date(Number(each.dataset.at)));
  }
}

// -- Live parts. A part in which the user types, or has selected text, waits.

function isInUse(part) {
  const selection = document.getSelection();
  const selected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  const typing = part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
  return selected || typing || $("details[open]", part) !== null;
}

function replacePart(id, html) {
  const part = document.getElementById(id);
  if (!part || isInUse(part)) return;
  const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const scrolled = $$(".scroll", part).map((each) => each.scrollLeft);
  part.innerHTML = html;
  localTimes(part);
  $$(".scroll", part).forEach((each, index) => (each.scrollLeft = scrolled[index] ?? 0));
  if (focused) $(`a[href="${CSS.escape(focused)}"]`, part)?.focus();
}

let sampledAt = 0;

function live() {
  if (!$("main [data-live]")) return;
  const source = new EventSource(location.pathname + location.search);
  source.addEventListener("parts", (event) => {
    const told = JSON.parse(event.data);
    sampledAt = told.at;
    for (const [id, html] of Object.entries(told.parts)) {
      if (id === "trouble") $("#trouble").innerHTML = html;
      else replacePart(id, html);
    }
    document.body.dataset.connected = "yes";
  });
  source.onerror = () => (document.body.dataset.connected = "no");
  addEventListener("pagehide", () => source.close());
  setInterval(() => {
    const lost = document.body.dataset.connected === "no";
    const old = sampledAt ? Math.round((Date.now() - sampledAt) / 1000) : 0;
    $("#age").textContent = lost ? "The console does not answer; trying again." : sampledAt ? `sampled ${old} s ago` : "";
  }, 1000);
}

// -- The page of messages.

function messages() {
  const target = $("#nothing[data-stream]");
  if (!target) return;
  const rows = $("#rows"), status = $("#status"), bar = $("#progress"), cancel = $("#cancel");
  const follows = new URLSearchParams(location.search).has("follow");
  const source = new EventSource(target.dataset.stream);
  const stop = (text) => {
    source.close();
    cancel.hidden = true;
    bar.hidden = true;
    if (text !== undefined) status.textContent = text;
    document.body.dataset.search = "done";
  };
  source.addEventListener("rows", (event) => {
    const holder = document.createElement("tbody");
    holder.innerHTML = JSON.parse(event.data);
    localTimes(holder);
    if (follows) {
      const fresh = [...holder.children].reverse();
      fresh.forEach((row) => row.classList.add("new"));
      rows.prepend(...fresh);
      setTimeout(() => fresh.forEach((row) => row.classList.remove("new")), 1500);
      while (rows.children.length > 500) rows.lastElementChild.remove();
    } else rows.append(...holder.children);
  });
  source.addEventListener("progress", (event) => {
    const told = JSON.parse(event.data);
    status.textContent = told.text;
    if (told.share === null) bar.removeAttribute("value");
    else bar.value = told.share;
  });
  source.addEventListener("problem", (event) => (status.textContent = JSON.parse(event.data)));
  source.addEventListener("failed", (event) => {
    stop(JSON.parse(event.data));
    status.className = "bad";
  });
  source.addEventListener("done", (event) => {
    const told = JSON.parse(event.data);
    stop(told.text);
    target.innerHTML = told.empty;
  });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED || !follows) stop("The console does not answer: load the page again.");
  };
  cancel.addEventListener("click", () => stop(`${status.textContent} Stopped.`));
  addEventListener("pagehide", () => source.close());
  rows.addEventListener("click", (event) => {
    const link = event.target.closest("a.record") ?? $("a.record", event.target.closest("tr") ?? rows);
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || String(document.getSelection())) return;
    event.preventDefault();
    showRecord(link.getAttribute("href"));
  });
}

async function showRecord(address) {
  const dialog = $("#record");
  const answer = await fetch(address, { headers: { "x-part": "1" } });
  const close = document.createElement("button");
  close.type = "button";
  close.className = "close";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.innerHTML = await answer.text();
  const whole = document.createElement("a");
  whole.href = address;
  whole.textContent = "Address of this record";
  dialog.prepend(close);
  dialog.append(whole);
  localTimes(dialog);
  dialog.showModal();
}

// -- Copying, confirming, the theme.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const text = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = text), 1200);
});

for (const input of $$("[data-confirm]")) {
  const button = $("button", input.closest("form"));
  const check = () => (button.disabled = input.value.trim() !== input.dataset.confirm);
  input.addEventListener("input", check);
  check();
}

function theme() {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
  $("#theme")?.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
}

// -- Keys: `/` searches, `g t` goes to the topics, `?` shows them all.

let isGoing = false;

function help() {
  const dialog = document.createElement("dialog");
  const title = document.createElement("h2");
  title.textContent = "Keyboard";
  const list = document.createElement("ul");
  const keys = [["/", "search"], ["Esc", "close"], ...$$("header nav a").map((link) => [`g ${link.dataset.key}`, link.textContent])];
  for (const [key, what] of keys) {
    const item = document.createElement("li");
    const shown = document.createElement("kbd");
    shown.textContent = key;
    item.append(shown, ` ${what}`);
    list.append(item);
  }
  dialog.append(title, list);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

$("#keys")?.addEventListener("click", help);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (isGoing) {
    isGoing = false;
    const link = $(`header nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => (isGoing = false), 1500);
  } else if (event.key === "/") {
    event.preventDefault();
    $("#search")?.focus();
  } else if (event.key === "?") help();
});

theme();
localTimes(document);
live();
messages();
