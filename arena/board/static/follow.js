// Keeps a page up to date: the server says when there is another version, whose sections replace those that differ.
import { listen, replace } from "./board.js";

const { arenaCharts: charts } = window;
const status = document.getElementById("follow");
const known = new Map(); // the text of each section, as the server has sent it

async function renew() {
  const answer = await fetch(location.pathname, { headers: { accept: "text/html" } });
  if (!answer.ok) return; // the stream says what is wrong
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  status.dataset.version = fresh.getElementById("follow").dataset.version;
  for (const name of Object.keys(charts.figures)) delete charts.figures[name];
  Object.assign(charts.figures, JSON.parse(fresh.getElementById("charts").textContent));
  for (const section of fresh.querySelectorAll("main > section[id]")) {
    const [old, html] = [document.getElementById(section.id), section.innerHTML];
    if (!old || known.get(section.id) === html) continue;
    known.set(section.id, html);
    const content = document.createDocumentFragment();
    content.append(...section.childNodes);
    replace(old, document.adoptNode(content));
  }
  charts.redraw();
}

// A trial that is pruned does not go on.
document.addEventListener("submit", (event) => {
  const { value, ariaLabel } = event.submitter ?? {};
  if (value === "prune" && !confirm(`${ariaLabel} for good?`)) event.preventDefault();
});

let renewing = Promise.resolve();
listen(status.dataset.events, document.getElementById("live"), ({ version, error }) => {
  const trouble = document.getElementById("trouble");
  trouble.hidden = !error;
  trouble.textContent = error;
  if (!error) renewing = renewing.then(() => version === status.dataset.version || renew());
});
