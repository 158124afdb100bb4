// Sends a file. Its key is the digest of what is in it, so that the same file is the same bulk, however it is sent.

import { busy, clear, refuse, say } from "/static/page.js";

const KINDS = { csv: "text/csv", jsonl: "application/x-ndjson", ndjson: "application/x-ndjson" };
const form = document.getElementById("upload");
const input = document.getElementById("file");
const button = document.getElementById("send");
const zone = form.querySelector(".drop");
const TRIES = 5;

async function digest(file) {
  const hash = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function choose() {
  const [file] = input.files;
  document.getElementById("chosen").textContent = file ? file.name : "Choose a file, or drop it here";
  button.disabled = !file;
  clear();
  document.getElementById("bad-lines").hidden = true;
  say("");
}

/** Sends it, and again with the same key where no answer came. */
async function send(file) {
  const kind = KINDS[file.name.split(".").at(-1).toLowerCase()] ?? file.type;
  const headers = { "Content-Type": kind, "Idempotency-Key": await digest(file), Accept: "application/json" };
  const address = `/bulk?name=${encodeURIComponent(file.name)}`;
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await fetch(address, { method: "POST", headers, body: file });
      if (answer.status !== 503 || attempt === TRIES) return answer;
    } catch (error) {
      if (attempt === TRIES) throw error;
    }
    say(`No answer yet. Sending it again with the same key, try ${attempt + 1}…`);
    await new Promise((wake) => setTimeout(wake, 500 * attempt));
  }
}

function showBadLines({ lines = [], count = 0 }) {
  const rows = lines.map(({ line, problem }) => {
    const row = document.createElement("tr");
    const number = Object.assign(document.createElement("td"), { className: "number line-number", textContent: line });
    row.append(number, Object.assign(document.createElement("td"), { textContent: problem }));
    return row;
  });
  document.getElementById("bad-list").replaceChildren(...rows);
  const more = count - lines.length;
  document.getElementById("bad-more").textContent = more > 0 ? `and ${more.toLocaleString("en-GB")} more` : "";
  document.getElementById("bad-lines").hidden = rows.length === 0;
}

async function upload(event) {
  event.preventDefault();
  const [file] = input.files;
  if (!file || button.getAttribute("aria-busy")) return;
  clear();
  showBadLines({});
  busy(button, true);
  say("Checking every line…");
  try {
    const answer = await send(file);
    const told = await answer.json();
    if (answer.ok) return location.assign(answer.headers.get("Location"));
    refuse({ title: told.title, text: told.detail });
    showBadLines(told);
  } catch {
    refuse({ title: "No answer from the server", text: "Press the button again: the same file is never paid twice." });
  } finally {
    busy(button, false);
    say("");
  }
}

input.addEventListener("change", choose);
form.addEventListener("submit", upload);
for (const name of ["dragenter", "dragover"]) {
  zone.addEventListener(name, (event) => (event.preventDefault(), zone.classList.add("over")));
}
zone.addEventListener("dragleave", () => zone.classList.remove("over"));
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("over");
  input.files = event.dataTransfer.files;
  choose();
});
choose();
