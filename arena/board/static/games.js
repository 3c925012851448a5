// What the pages of games share: the stream of messages from a game's process, pictures, tables and bars.

const unanswered = (error) => {
  throw error.name === "AbortError" ? error : new Error("The server does not answer: it has ended, or is out of reach.");
};

// Posts a form; resolves to the answer, rejects with its text if it is refused.
export async function post(address, fields, options = {}) {
  const answer = await fetch(address, { method: "POST", body: new URLSearchParams(fields), ...options }).catch(unanswered);
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

// Calls `take(fields)` for each message of a stream: lines of JSON.
export async function listen(address, fields, take, signal) {
  const reader = (await post(address, fields, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read().catch(unanswered);
    if (done) return void (await fetch("/static/games.js", { method: "HEAD", cache: "no-store" }).catch(unanswered)); // it ends with the server, too
    const lines = value.split("\n");
    for (let place = 0; place < lines.length - 1; place += 1) {
      take(JSON.parse(parts.join("") + lines[place]));
      parts = [];
    }
    parts.push(lines.at(-1));
  }
}

// An element with attributes and children; nothing is taken for HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [what, how] of Object.entries(value)) made.style.setProperty(what, how);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => (child ?? false) !== false));
  return made;
}

const settled = (value) => (Math.abs(value) < 1e-15 ? 0 : value); // rounding errors are 0, as in a report
export const number = (value) => (value === null || value === undefined ? "–" : String(+(+settled(value)).toPrecision(4)).replaceAll("-", "−"));

// A whole number in groups of three, as on the page of a run.
export const whole = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.01 ? 1 : 0)} %`;

export const at = (id) => document.getElementById(id);
export const outcomes = { win: "won", loss: "lost", draw: "drew" };

// Says that something is loading, with the seconds since, until another text is there.
export function loading(place, what) {
  let seconds = 0, text = (place.textContent = `Loading ${what} …`);
  const timer = setInterval(() => {
    if (place.textContent !== text) clearInterval(timer);
    else place.textContent = text = `Loading ${what} … ${(seconds += 1)} s`;
  }, 1000);
}

// Shows a message's picture, or its text without the colors of a terminal.
// Small pictures are enlarged by whole factors, so that their pixels stay sharp.
let newest = 0; // pictures are decoded at once: one that is late is not drawn
export async function draw(said, label) {
  const mine = (newest += 1), image = new Image(), canvas = at("picture");
  canvas.hidden = !said.picture;
  canvas.setAttribute("aria-label", label);
  at("text").hidden = said.text === undefined;
  const lines = (at("text").textContent = (said.text ?? "").replace(/\x1b\[[0-9;]*m/g, "")).split("\n");
  at("text").style.setProperty("--wide", Math.max(...lines.map((line) => line.length)));
  if (!said.picture) return;
  image.src = `data:image/png;base64,${said.picture}`;
  await image.decode();
  if (mine !== newest) return;
  canvas.width = image.width;
  canvas.height = image.height;
  const longer = Math.max(image.width, image.height);
  canvas.style.width = `${image.width * (longer < 360 ? Math.ceil(360 / longer) : 1)}px`;
  canvas.classList.toggle("sharp", longer < 360);
  canvas.getContext("2d").drawImage(image, 0, 0);
  canvas.dataset.tick = said.tick;
}

// A swatch of a color of a game, which may be empty.
const swatch = (color) => (color ? element("span", { class: "swatch", style: { "--c": color } }) : null);

// An entity: its swatch, its name, and that of its piece.
export const who = ({ color, piece }, name) => [swatch(color) ?? "", piece ? `${name} (${piece})` : name];

// Observations: one labeled table after the other.
export function tables(found) {
  return found.filter((table) => table.rows.length).map((table) =>
    element("div", { class: "scroll" }, element("table", { class: "seen" },
      element("thead", {}, element("tr", {}, ...table.columns.map((name, place) =>
        element("th", place ? { class: "n" } : {}, place || !table.title ? name : `${table.title} ${name === "unit" ? "" : name}`)))),
      element("tbody", {}, ...table.rows.map((row) => element("tr", {}, ...row.map((cell, place) =>
        element("td", place ? { class: "n" } : {}, typeof cell === "string" ? cell : number(cell)))))))));
}

// What an option is called: units by their number too.
export const named = (decision, option) => (decision.by_label ? option.label || String(option.number) : `${option.label} ${option.number}`);

// What a policy thinks of decisions: a bar for the probability of each option, or the number that it would choose.
// `taken` are the choices that were made.
export function thoughts(title, decisions, { choices, shares, value }, taken, fits = () => true) {
  const of = (decision, place) => {
    const all = decision.options.map((option, at) => ({ ...option, share: shares[place]?.[at] ?? 0, taken: taken && taken[place] === option.choice }));
    const shown = all.sort((a, b) => b.share - a.share).filter((option, at) => at < 6 || option.taken);
    const chosen = decision.bounds && `: would choose ${number(choices[place])}${taken ? `; chosen: ${number(taken[place])} ✓` : ""}`;
    return element("div", { class: "thought" }, element("p", {}, decision.what, chosen),
      element("ul", {}, ...shown.map((option) => element("li", option.taken ? { class: "taken" } : {},
        element("span", { class: "bar-of", style: { "--p": `${100 * option.share}%` } }),
        element("span", {}, named(decision, option), option.taken ? " ✓" : ""), element("span", { class: "n" }, percent(option.share))))));
  };
  return element("section", { class: "thoughts" }, element("h3", {}, ...title),
    value !== null && element("p", { class: "caption" }, `expects a return of ${number(value)}`),
    ...decisions.map((decision, place) => fits(decision) && of(decision, place)));
}
