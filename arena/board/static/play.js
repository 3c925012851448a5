// A seat at a match: turns come as messages, choices go back. A closed page ends the game, one that is loaded again not.
import { at, draw, element, listen, loading, named, number, outcomes, percent, post, tables, thoughts, who } from "./games.js";

const { number: home, run } = at("table").dataset;
let me = null, players = [], turn = null, chosen = [], actor = null, over = false, ended = 0; // of my entities

const seat = new URLSearchParams(location.search).get("seat") ?? "", kept = `${home} ${seat}`;
const leaving = new AbortController();
listen(`/play-join/${home}`, { seat, token: sessionStorage.getItem(kept) ?? "" }, take, leaving.signal)
  .then(() => over || stop("The game has ended."), (error) => stop(error.message));

function stop(text) {
  if (over) return;
  over = true;
  turn = null;
  at("problem").textContent = text;
  at("problem").hidden = false;
  at("moves").replaceChildren();
  at("status").textContent = "";
  if (!players.length) at("title").textContent = me ? "No game" : "No seat";
}

const does = {
  opened: (said) => {
    me = said;
    sessionStorage.setItem(kept, said.token);
    at("title").textContent = `Your seat: ${said.seat}`;
  },
  waits: (said) => {
    const links = said.seats.map((seat) => {
      const address = `${location.origin}/play-game/${home}?seat=${seat}`;
      return element("p", {}, `Seat ${seat}: `, element("a", { href: address, target: "_blank", rel: "noopener" }, address));
    });
    at("invite").replaceChildren(element("p", {}, "The game begins when these seats are taken. Open each in another tab of this browser:"), ...links);
    at("invite").hidden = false;
    at("status").textContent = "Waiting for other people.";
  },
  begins: () => {
    at("invite").hidden = true;
    at("status").textContent = "";
    loading(at("title"), "the game");
  },
  match: (said) => {
    ({ players } = said);
    const mine = players.find((one) => one.seat === me.seat);
    at("title").replaceChildren(`${said.env}: you are `, ...who(mine, mine.entities.join(", ")));
    const row = (player) => element("tr", {}, element("th", { scope: "row" }, ...who(player, player.entities.join(", "))),
      element("td", {}, player.seat === me.seat ? "you" : player.human ? "another person" : player.policy === player.algorithm ? player.policy : `${player.policy} (${player.algorithm})`),
      element("td", { class: "muted" }, `seat ${player.seat}`));
    document.querySelector("#players tbody").replaceChildren(...players.map(row));
    at("status").textContent = "Loading the opponents … Keys count from your first turn on.";
  },
  state: (said) => {
    draw(said, `the game at tick ${said.tick}`);
    at("where").textContent = `tick ${said.tick}`;
    if (!turn) at("status").textContent = "Waiting for the others.";
  },
  turn: (said) => begin(said),
  told: (said) => {
    at("problem").textContent = said.text;
    at("problem").hidden = false;
    show();
  },
  moves: (said) => {
    moves.push(...said.moves);
    review();
    if (++ended < players.find((one) => one.seat === me.seat).entities.length) return;
    turn = null;
    at("status").textContent = "Your part is over, and with it the pictures; the result follows when the game ends.";
  },
  over: (said) => end(said),
  error: (said) => stop(said.text),
};

function take(said) {
  does[said.kind]?.(said);
}

// ---------------------------------------------------------------- a turn

function begin(said) {
  turn = said;
  const features = (table, row) => table.columns.map((name, place) => [name, row[place]]).slice(1);
  said.units = said.tables.filter((table) => table.units).flatMap((table) => table.rows.map((row) => ({
    ...Object.fromEntries(features(table, row).filter(([name]) => name === "x" || name === "y")), unit: row[0], type: table.title,
    text: features(table, row).map(([name, value]) => `${name} ${number(value)}`).join(", ") })));
  chosen = said.decisions.map((decision) => {
    if (decision.bounds) return middle(decision.bounds, decision.whole);
    return decision.options.length === 1 ? decision.options[0].choice : null;
  });
  const open = said.decisions.find((decision, place) => chosen[place] === null && decision.actor !== null);
  actor = open ? open.actor : said.decisions[0]?.actor ?? null;
  at("problem").hidden = true;
  const earned = `reward ${number(said.reward)}, return ${number(said.earned)}`;
  at("status").replaceChildren(element("b", {}, players.find((one) => one.seat === me.seat)?.entities.length > 1 ? `Your turn: ${said.entity}` : "Your turn"), ` at tick ${said.tick}, ${earned}`);
  const opened = at("observations").querySelector("details")?.open ?? (at("picture").hidden && at("text").hidden && !said.units.length);
  at("observations").replaceChildren(element("details", { open: opened }, element("summary", {}, "what you see"), ...tables(said.tables)));
  show();
}

const middle = ([low, high], whole) => {
  const found = low === null || high === null ? 0 : (low + high) / 2;
  return whole ? Math.round(found) : found;
};
// Rows and columns, where labels are those of cells: "top left", or "column 3".
function cells(decision) {
  const all = [...decision.options, ...decision.closed].sort((a, b) => a.number - b.number).map((option) => option.label.split(" "));
  const [rows, columns] = [0, 1].map((at) => [...new Set(all.map((words) => words[at]))]);
  const whole = all.every((words) => words.length === 2) && rows.length * columns.length === all.length && columns.length > 1;
  return whole && (rows.length > 1 || rows[0] === "column") ? [rows, columns] : null;
}
at("picture").onclick = (event) => {
  const place = turn && single() ? cells(turn.decisions[0]) : null;
  if (!place) return;
  const { width, height } = event.target.getBoundingClientRect(), { options, closed } = turn.decisions[0];
  const clicked = (names, share) => names[Math.min(names.length - 1, Math.floor(names.length * share))];
  const label = `${clicked(place[0], event.offsetY / height)} ${clicked(place[1], event.offsetX / width)}`;
  if (closed.some((option) => option.label === label)) does.told({ text: `${label} is not a choice now.` });
  else choose(0, options.find((option) => option.label === label).choice);
};
const single = () => turn.decisions.length === 1 && !turn.decisions[0].bounds && turn.decisions[0].actor === null;

// The keys of an option: its own ones, that of a direction, and the digit of its number.
const directions = { "+x": "right", "-x": "left", "+y": "up", "-y": "down" };
function keysOf(decision, option) {
  const own = [...option.keys];
  if (decision.actor !== null && directions[option.label]) own.push(directions[option.label]);
  if (option.number < 10 && decision.options.length + decision.closed.length <= 10) own.push(String(option.number));
  return own;
}

function choose(place, choice) {
  chosen[place] = choice;
  const open = turn.decisions.find((decision, other) => chosen[other] === null && decision.actor !== null);
  if (turn.decisions[place].actor !== null && open) actor = open.actor;
  if (single()) send();
  else show();
}

function send() {
  if (!turn || chosen.includes(null)) return;
  const answer = { token: me.token, turn: turn.turn, choices: JSON.stringify(chosen) };
  at("status").textContent = "Waiting for the others.";
  at("problem").hidden = true;
  for (const one of at("moves").querySelectorAll("button, input")) one.disabled = true;
  post(`/play-answer/${home}`, answer).catch((error) => stop(error.message));
}

// The options in their places, whether they are allowed now or not; as a grid where labels are those of rows and columns.
function buttons(decision, place) {
  const open = new Set(decision.options), all = [...decision.options, ...decision.closed].sort((a, b) => a.number - b.number);
  const grid = cells(decision), [rows, columns] = grid ?? [[], []];
  const order = (option) => option.label.split(" ").reduce((sum, word, at) => sum + (at ? columns.indexOf(word) : columns.length * rows.indexOf(word)), 0);
  if (grid) all.sort((a, b) => order(a) - order(b));
  return element("div", { class: grid && rows.length > 1 ? "options grid" : "options", style: { "--columns": columns.length }, role: "group", "aria-label": decision.what }, ...all.map((option) => {
    const keys = keysOf(decision, option), name = named(decision, option);
    return element("button", { type: "button", disabled: !open.has(option), "aria-pressed": single() ? null : String(chosen[place] === option.choice), "data-choice": option.choice, onclick: () => choose(place, option.choice) },
      name, ...keys.slice(0, 2).filter((key) => key !== name).map((key) => element("kbd", {}, shownKey(key))));
  }));
}

const arrows = { left: "←", right: "→", up: "↑", down: "↓" };
const shownKey = (key) => arrows[key] ?? key;

function slider(decision, place) {
  const [low, high] = decision.bounds, kinds = low !== null && high !== null ? ["range", "number"] : ["number"];
  const fields = kinds.map((type) => element("input", {
    type, min: low, max: high, step: decision.whole ? 1 : type === "range" ? (high - low) / 200 : "any", value: chosen[place] === null ? "" : +chosen[place].toPrecision(5), "aria-label": decision.what,
    oninput: (event) => {
      chosen[place] = event.target.value === "" ? null : +event.target.value;
      for (const one of fields) if (one !== event.target) one.value = event.target.value;
    },
    onkeydown: (event) => event.key === "Enter" && (event.preventDefault(), send()),
  }));
  return element("div", { class: "slide" }, ...fields);
}

function show() {
  if (!turn) return;
  const parts = [];
  const mine = turn.decisions.map((decision, place) => [decision, place]);
  const units = mine.filter(([decision]) => decision.actor !== null);
  if (units.length) parts.push(...orders(units));
  for (const [decision, place] of mine) {
    if (decision.actor !== null) continue;
    parts.push(element("div", { class: "decision" }, element("p", { class: "caption" }, decision.what === "action" ? "your action" : decision.what), decision.bounds ? slider(decision, place) : buttons(decision, place)));
  }
  if (!single()) {
    const left = chosen.filter((choice) => choice === null).length;
    parts.push(element("p", {}, element("button", { type: "button", class: "main", id: "send", disabled: left > 0, onclick: send }, "Play this move", element("kbd", {}, "Enter")),
      left ? element("span", { class: "caption" }, ` ${left} still to decide`) : null));
  }
  at("moves").replaceChildren(...parts);
  at("picture").classList.toggle("cells", single() && cells(turn.decisions[0]) !== null);
  const advice = turn.advice && thoughts([`Advice of ${at("table").dataset.advice}`], turn.decisions, turn.advice, null, (decision) => decision.actor === null || decision.actor === actor);
  at("thoughts").replaceChildren(...[advice].filter(Boolean));
}

// Units: a map where they have places, else a list; a click picks a unit, another one its order or its target.
function orders(units) {
  const acts = new Map();
  for (const [decision, place] of units) acts.set(decision.actor, [...(acts.get(decision.actor) ?? []), place]);
  const now = acts.get(actor) ?? [];
  const targets = new Map(); // unit -> the decision and the choice that a click makes
  for (const place of now)
    if (!turn.decisions[place].by_label) for (const option of turn.decisions[place].options) targets.set(option.number, [place, option.choice]);
  const pick = (unit) => {
    if (targets.has(unit) && unit !== actor) choose(...targets.get(unit));
    else if (acts.has(unit)) {
      actor = unit;
      show();
    }
  };
  const done = (unit) => acts.get(unit).every((place) => chosen[place] !== null);
  const state = (unit) => [unit === actor ? "picked" : "", targets.has(unit) ? "target" : "", acts.has(unit) ? (done(unit) ? "done" : "open") : ""].join(" ");
  const title = (unit) => `${unit.type} ${unit.unit}: ${unit.text}${acts.has(unit.unit) ? (done(unit.unit) ? ", decided" : ", to decide") : ""}${targets.has(unit.unit) ? ", a target" : ""}`;
  const types = [...new Set(turn.units.map((unit) => unit.type))];
  const parts = [];
  const placed = turn.units.filter((unit) => typeof unit.x === "number" && typeof unit.y === "number");
  if (placed.length) parts.push(map(placed, types, pick, state, title));
  const rest = turn.units.filter((unit) => !placed.includes(unit) && acts.has(unit.unit));
  if (rest.length && acts.size > 1) parts.push(element("div", { class: "options" }, ...rest.map((unit) => element("button", { type: "button", class: state(unit.unit), "data-unit": unit.unit, onclick: () => pick(unit.unit) }, `${unit.type} ${unit.unit}`))));
  for (const place of now) {
    const decision = turn.decisions[place];
    const hint = !decision.by_label ? `${decision.what}: ${placed.length ? "click a target" : "choose one"}` : decision.what;
    parts.push(element("div", { class: "decision" }, element("p", { class: "caption" }, hint), buttons(decision, place)));
  }
  return parts;
}

let box = [Infinity, Infinity, -Infinity, -Infinity]; // it only grows, so that the map does not jump
function map(units, types, pick, state, title) {
  for (const { x, y } of units) box = [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)];
  const size = [box[2] - box[0], box[3] - box[1]], whole = units.every(({ x, y }) => Number.isInteger(x) && Number.isInteger(y));
  const cell = whole ? 1 : Math.max(...size, 1e-6) / 12, shared = new Map();
  const own = units.find(({ unit }) => turn.decisions.some((decision) => decision.actor === unit))?.type; // in the picture's colors, where it has two
  const [mine, other] = players.length === 2 && types.length === 2 ? [players[me.seat].color, players[1 - me.seat].color] : [];
  return element("div", { class: whole ? "map cells" : "map", style: { "--wide": size[0] / cell + 2, "--high": size[1] / cell + 2 } }, ...units.map((one) => {
    const place = `${one.x} ${one.y}`, before = shared.get(place) ?? 0;
    shared.set(place, before + 1);
    return element("button", { type: "button", class: `type-${types.indexOf(one.type) % 6} ${state(one.unit)}`, "data-unit": one.unit, disabled: !/open|done|target/.test(state(one.unit)), title: title(one), "aria-label": title(one), onclick: () => pick(one.unit),
      style: { "--x": (one.x - box[0]) / cell + 1 + 0.16 * before, "--y": (box[3] - one.y) / cell + 1 + 0.16 * before, ...(mine && other ? { "--c": one.type === own ? mine : other } : {}) } }, String(one.unit)); // y is up
  }));
}

addEventListener("pagehide", () => leaving.abort()); // a page that the browser keeps ends its game, too
addEventListener("pageshow", (event) => event.persisted && location.reload());
document.addEventListener("keydown", (event) => {
  if (over || event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) return;
  if (event.key.startsWith("Arrow")) event.preventDefault(); // moves the piece, not the page
  if (!turn) return;
  const key = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", " ": "space", Enter: "enter" }[event.key] ?? event.key;
  const place = turn.decisions.findIndex((decision, one) => !decision.bounds && (single() || (decision.actor !== null && decision.actor === actor) || (decision.actor === null && chosen[one] === null)));
  const decision = turn.decisions[place];
  const option = decision && decision.options.find((one) => keysOf(decision, one).includes(key));
  const [axis, way] = { left: ["x", -1], right: ["x", 1], up: ["y", 1], down: ["y", -1] }[key] ?? [];
  if (axis && turn.decisions.some(({ what, bounds }) => bounds && what.replace("-", "") === axis)) { // numbers named x and y, or -x and -y
    chosen = turn.decisions.map(({ what, bounds, whole }) => (what.replace("-", "") === axis ? bounds[way === (what[0] === "-" ? -1 : 1) ? 1 : 0] : middle(bounds, whole)));
    send();
  } else if (option) {
    event.preventDefault();
    event.target.closest("summary, a")?.blur(); // so that Enter plays the move
    choose(place, option.choice);
  } else if (event.key === "Enter" && !single() && !event.target.closest("button, a, summary")) {
    event.preventDefault();
    send();
  } else if (key.length === 1) {
    const closed = decision?.closed.find((one) => keysOf(decision, one).includes(key));
    does.told({ text: `${closed ? named(decision, closed) : key} is not a choice now.` });
  }
});

// ---------------------------------------------------------------- the end

function end(said) {
  over = true;
  turn = null;
  at("moves").replaceChildren();
  at("thoughts").replaceChildren();
  at("status").textContent = "";
  const { seats, length, terminated } = said.episode, mine = seats[me.seat];
  const rest = seats.map((one, seat) => {
    const name = seat === me.seat ? "you" : players[seat].human ? `the person of seat ${seat}` : players[seat].policy;
    const earned = one.return === null ? "no part" : `a return of ${number(one.return)}`;
    return one.outcome ? `${name} ${outcomes[one.outcome]} with ${earned}` : `${name} had ${earned}`;
  });
  const title = mine.outcome ? { win: "You have won", loss: "You have lost", draw: "A draw" }[mine.outcome] : "The game is over";
  at("result").classList.add(mine.outcome ?? "none");
  at("result").replaceChildren(element("h2", {}, title),
    element("p", {}, `It took ${length} ticks${terminated ? "" : ", its limit"}: ${[...new Set(rest)].join(", ")}.`),
    ...[said.rated, said.folder && `Its records are in ${said.folder}.`].filter(Boolean).map((text) => element("p", { class: "caption" }, text)),
    element("p", { class: "choices" }, element("a", { href: at("table").dataset.back }, "Play again"),
      said.recorded && element("a", { href: `/watch/${run}/evaluations/${encodeURIComponent(said.folder.split("/").at(-1))}?episode=0/0/0/0` }, "Watch it again"),
      said.rated && element("a", { href: `/run/${run}#standings` }, "Standings, which follow within a minute")));
  at("result").hidden = false;
}

const moves = []; // of all my entities

function review() {
  moves.sort((a, b) => a.tick - b.tick);
  const names = [...new Set(moves.flatMap((move) => Object.keys(move.by)))];
  if (!moves.length || !names.length) return;
  const head = element("tr", {}, element("th", {}, "tick"), element("th", {}, "you"), ...names.map((name) => element("th", { class: "n" }, `probability by ${name}`)));
  const row = (move) => element("tr", {}, element("td", {}, String(move.tick)), element("td", {}, move.did), ...names.map((name) => element("td", { class: "n" }, move.by[name] === undefined || move.by[name] === null ? "–" : percent(move.by[name]))));
  at("review").replaceChildren(element("section", {}, element("header", {}, element("h2", {}, "Your moves, by your opponents")),
    element("p", { class: "caption" }, "The probability that an opponent gave your move in your place."),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...moves.map(row))))));
}
