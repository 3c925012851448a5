// The list of runs: sorted, filtered, chosen for a comparison, and up to date.
import { element } from "./games.js";

const body = document.getElementById("rows");
const filter = document.getElementById("filter");
const compare = document.getElementById("compare");
const chosen = new Set();
const sizes = new Map();
let rows = [];
let order = { key: "began", down: true };
let clock = 0; // of the server, seconds

const values = {
  name: (row) => row.name,
  state: (row) => row.state,
  progress: (row) => (row.planned ? row.done / row.planned : row.done),
  rate: (row) => row.rate,
  best: (row) => row.best || null,
  began: (row) => row.began,
  size: (row) => sizes.get(row.path) ?? null,
};

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function ago(seconds) {
  if (seconds === null) return "";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = parts.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.max(0, Math.floor(seconds / size))} ${unit} ago`;
}

function bytes(size) {
  if (size === undefined) return "";
  const power = Math.min(4, Math.floor(Math.log10(Math.max(size, 1)) / 3));
  return `${(size / 1000 ** power).toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

function line(row) {
  const share = row.planned ? Math.min(1, row.done / row.planned) : null;
  const mark = (event) => (event.target.checked ? chosen.add(row.path) : chosen.delete(row.path), count());
  const value = row.value === null ? "" : `${row.measure === "Elo" ? Math.round(row.value) : row.value.toPrecision(3)} `;
  return element("tr", { "data-path": row.path },
    element("td", {}, row.kind === "run" && element("input", { type: "checkbox", "aria-label": `compare ${row.name}`, checked: chosen.has(row.path), onchange: mark })),
    element("th", { scope: "row" }, element("a", { href: `/${row.kind}/${row.path}` }, row.name), row.kind === "experiment" && " ", row.kind === "experiment" && element("span", { class: "muted" }, "experiment")),
    element("td", {}, element("span", { class: `state ${row.state.replace(" ", "-")}` }, row.state)),
    element("td", { class: "n progress" }, share !== null && element("progress", { max: 1, value: share, "aria-label": "progress" }),
      row.done !== null && (share === null ? `${plain.format(row.done)} ticks` : ` ${Math.floor(100 * share)} %`)),
    element("td", { class: "n" }, row.rate !== null && plain.format(row.rate)),
    element("td", {}, row.best),
    element("td", { class: "n" }, value, element("span", { class: "muted" }, value && row.measure)),
    element("td", { class: "n" }, row.began !== null && ago(clock - row.began)),
    element("td", { class: "n size" }, bytes(sizes.get(row.path))));
}

function matching() {
  const [text, state] = [filter.text.value.trim().toLowerCase(), filter.state.value];
  const found = rows.filter((row) => [row.name, row.best, ...row.policies].join(" ").toLowerCase().includes(text) && (!state || row.state === state));
  const value = values[order.key];
  const compared = (a, b) => (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
  return found.sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return (a === null) - (b === null); // what is not known comes last
    return (order.down ? -1 : 1) * compared(a, b) || one.name.localeCompare(other.name, undefined, { numeric: true });
  });
}

function count() {
  document.getElementById("count").textContent = rows.length && !body.rows.length ? "No run fits." : `${body.rows.length} of ${rows.length}`;
  compare.disabled = chosen.size < 2;
  compare.textContent = chosen.size ? `Compare ${chosen.size} runs` : "Compare the chosen";
}

// Measures the folders of the lines that are in sight, each once.
const waiting = new Set();
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const path = entry.target.dataset.path;
    if (entry.isIntersecting && !sizes.has(path)) waiting.add(path);
  }
  if (waiting.size) setTimeout(measure, 100);
});

async function measure() {
  const paths = [...waiting].slice(0, 50);
  paths.forEach((path) => waiting.delete(path));
  if (!paths.length) return;
  const answer = await fetch(`/runs/sizes?${paths.map((path) => `run=${encodeURIComponent(decodeURIComponent(path))}`).join("&")}`);
  if (!answer.ok) return;
  const found = await answer.json();
  for (const path of paths) sizes.set(path, found[decodeURIComponent(path)]);
  for (const row of body.rows) {
    if (sizes.has(row.dataset.path)) row.querySelector(".size").textContent = bytes(sizes.get(row.dataset.path));
  }
  if (waiting.size) measure();
}

function show() {
  const active = document.activeElement;
  const focus = body.contains(active) && [active.closest("tr").dataset.path, active.tagName];
  const made = matching().map(line);
  seen.disconnect();
  body.replaceChildren(...made);
  made.forEach((row) => seen.observe(row));
  if (focus) made.find((row) => row.dataset.path === focus[0])?.querySelector(focus[1].toLowerCase())?.focus();
  document.getElementById("empty").hidden = rows.length > 0;
  count();
}

let shown = "";
function take(found) {
  ({ rows, now: clock } = found);
  for (const path of chosen) if (!rows.some((row) => row.path === path)) chosen.delete(path);
  const text = JSON.stringify(rows) + Math.floor(clock / 60);
  if (text !== shown) show();
  shown = text;
  return found.again;
}

async function refresh() {
  let again = 5;
  const trouble = document.getElementById("trouble");
  try {
    const answer = await fetch("/runs/list");
    if (!answer.ok) throw new Error(await answer.text());
    again = take(await answer.json());
    trouble.hidden = true;
  } catch (error) {
    trouble.textContent = error instanceof TypeError ? "The server of this page has ended." : error.message;
    trouble.hidden = false;
  }
  later(again);
}

function later(seconds) {
  setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", refresh, { once: true }) : refresh()), 1000 * seconds);
}

for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    const key = button.dataset.sort;
    order = { key, down: order.key === key ? !order.down : !["name", "state", "best"].includes(key) };
    mark();
    show();
  });
}
function mark() {
  for (const other of document.querySelectorAll("[data-sort]")) {
    const sorted = other.dataset.sort !== order.key ? "none" : order.down ? "descending" : "ascending";
    other.closest("th").setAttribute("aria-sort", sorted);
  }
}
filter.addEventListener("input", show);
filter.addEventListener("submit", (event) => event.preventDefault());
compare.addEventListener("click", () => {
  location.href = `/compare?${[...chosen].map((path) => `run=${encodeURIComponent(decodeURIComponent(path))}`).join("&")}`;
});
mark();
later(take(JSON.parse(document.getElementById("found").textContent))); // those of the page itself
