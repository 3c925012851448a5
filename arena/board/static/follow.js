// Keeps a page up to date: the server says when there is another version, and its sections replace those that differ.
import { dress } from "./board.js";

const status = document.querySelector("[data-follow]");
const focusable = "a, button, input, select, summary, [tabindex]";
const known = new Map(); // the text of each section, as the server has sent it
for (const section of document.querySelectorAll("main > section[id]")) known.set(section.id, null);

function replace(old, fresh) {
  for (const place of fresh.querySelectorAll("[data-chart]")) {
    const drawn = old.querySelector(`[data-chart="${CSS.escape(place.dataset.chart)}"]`);
    if (drawn?.drawn) place.replaceWith(drawn);
  }
  const open = [...old.querySelectorAll("details")].map((details) => details.open);
  const focus = [...old.querySelectorAll(focusable)].indexOf(document.activeElement);
  const scrolled = [...old.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
  old.replaceChildren(...fresh.childNodes);
  dress(old);
  old.querySelectorAll("details").forEach((details, place) => (details.open = open[place] ?? details.open));
  window.arenaCharts?.wire(old);
  document.dispatchEvent(new CustomEvent("renewed", { detail: old }));
  old.querySelectorAll(".scroll").forEach((part, place) => (part.scrollLeft = scrolled[place] ?? 0));
  if (focus >= 0) old.querySelectorAll(focusable)[focus]?.focus({ preventScroll: true });
}

async function renew() {
  const answer = await fetch(location.pathname, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  status.dataset.version = fresh.querySelector("[data-follow]").dataset.version;
  const charts = window.arenaCharts;
  if (charts) {
    for (const name of Object.keys(charts.figures)) delete charts.figures[name];
    Object.assign(charts.figures, JSON.parse(fresh.getElementById("charts").textContent));
  }
  for (const section of fresh.querySelectorAll("main > section[id]")) {
    const [old, text] = [document.getElementById(section.id), section.innerHTML];
    if (!old || known.get(section.id) === text) continue;
    known.set(section.id, text);
    replace(old, section);
  }
  charts?.redraw();
}

function say(text) {
  status.hidden = !text;
  status.textContent = text;
}

let renewing = Promise.resolve();
const stream = new EventSource(status.dataset.follow);
stream.addEventListener("message", (event) => {
  renewing = renewing.then(async () => {
    if (event.data !== status.dataset.version) await renew();
    say("");
  });
});
stream.addEventListener("wrong", (event) => say(event.data));
stream.addEventListener("error", () => say("The server does not answer: this page is as it was."));
stream.addEventListener("open", () => say(""));
addEventListener("pagehide", () => stream.close());
