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
  source.onerror = () => {
    document.body.dataset.connected = "no";
    // Refused for good: the session is over, and the page that answers now is the one to sign in.
    if (source.readyState === EventSource.CLOSED) location.reload();
  };
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
  const keys = [["/", "search"], ["Esc", "close"], ...$$("header > nav a").map((link) => [`g ${link.dataset.key}`, link.textContent])];
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
    const link = $(`header > nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => (isGoing = false), 1500);
  } else if (event.key === "/") {
    event.preventDefault();
    $("#search")?.focus();
  } else if (event.key === "?") help();
});

// -- A file of records: read in pieces, first to look at all of it, then to send it. The server keeps nothing between
// two pieces: it says how many bytes it used, and the next piece begins there.

const PIECE = 1 << 20, PIECE_MAX = 8 << 20;

function upload(form) {
  const part = (selector) => $(selector, form);
  const status = part("[role=status]"), bar = part("progress"), errors = part(".errors"), preview = part(".preview");
  const send = part("[data-step=send]"), stopping = part("[data-step=stop]"), check = part("[data-step=check]");
  let stopped = false;

  const say = (text, isBad) => {
    status.textContent = text;
    status.classList.toggle("bad", Boolean(isBad));
  };

  async function pass(file, writes) {
    const total = { lines: 0, records: 0, wrong: 0 };
    let at = 0, size = PIECE, columns = [];
    while (at < file.size && !stopped) {
      const end = Math.min(file.size, at + size);
      const query = new URLSearchParams({
        format: form.elements.format.value, key: form.elements.key.value, first: total.lines + 1,
        last: end === file.size ? "1" : "0", write: writes ? "1" : "0", columns: JSON.stringify(columns),
      });
      let answer;
      try {
        answer = await fetch(`${form.dataset.upload}?${query}`, {
          method: "POST", body: file.slice(at, end), headers: { "x-csrf": form.dataset.csrf },
        });
      } catch (error) {
        throw new Error(`the console did not answer (${error.message})`);
      }
      if (!answer.ok) throw Object.assign(new Error(await answer.text()), { total });
      const told = await answer.json();
      if (!told.used && end < file.size) {
        if (size >= PIECE_MAX) throw Object.assign(new Error(`line ${total.lines + 1} is too long`), { total });
        size = Math.min(PIECE_MAX, size * 2);
        continue;
      }
      if (at === 0 && !writes) preview.innerHTML = told.preview;
      at += told.used;
      columns = told.columns;
      total.lines += told.lines;
      total.records += told.records;
      total.wrong += told.wrong;
      for (const [line, why] of writes ? [] : told.errors) {
        if (errors.children.length >= 100) break;
        const item = document.createElement("li");
        item.textContent = `line ${line}: ${why}`;
        errors.append(item);
      }
      bar.value = at / file.size;
      say(`${total.records.toLocaleString()} records ${writes ? "written" : "read"}`);
    }
    return total;
  }

  async function run(writes) {
    const file = form.elements.file.files[0];
    if (!file) return;
    stopped = false;
    form.dataset.state = "running";
    check.disabled = true;
    send.hidden = true;
    stopping.hidden = bar.hidden = false;
    bar.value = 0;
    if (!writes) {
      errors.replaceChildren();
      preview.replaceChildren();
    }
    let state = "done";
    try {
      const total = await pass(file, writes);
      const left = total.wrong ? ` ${total.wrong.toLocaleString()} lines are wrong and left out.` : "";
      const count = `${total.records.toLocaleString()} records`;
      if (stopped) say(`Stopped after line ${total.lines.toLocaleString()}: ${count} ${writes ? "are written" : "read"}.`);
      else if (writes) say(`${count} are written.${left}`);
      else {
        say(`${total.lines.toLocaleString()} lines, ${count}.${left}`, total.wrong);
        send.hidden = !total.records;
        send.textContent = `Send ${count}`;
        state = "checked";
      }
    } catch (error) {
      const done = error.total && writes ? ` The lines up to ${error.total.lines.toLocaleString()} are written.` : "";
      say(`${error.message}${done}`, true);
    }
    check.disabled = false;
    stopping.hidden = bar.hidden = true;
    form.dataset.state = state;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(false);
  });
  form.addEventListener("input", () => (send.hidden = true));
  send.addEventListener("click", () => run(true));
  stopping.addEventListener("click", () => (stopped = true));
}

for (const form of $$("form[data-upload]")) upload(form);

theme();
localTimes(document);
live();
messages();
