// Recorded episodes: a table with filters, and a player that asks a game's process for the ticks that it shows.
import { at, draw, element, listen, loading, number, outcomes, post, tables, thoughts, who, whole } from "./games.js";

const MOST_BYTES = 96e6, MOST_FRAMES = 3000, AHEAD = 60, FEW = 25;
const home = at("player").dataset.path, trusted = "trusted" in at("player").dataset;

let game = null; // of the episode that is open: its number, what is known of it, its frames

// ---------------------------------------------------------------- the player

function open(place, tick = 0, playing = true) {
  if (game) close();
  at("player").hidden = false;
  at("problem").hidden = true;
  address(place, playing ? undefined : tick);
  for (const id of ["thoughts", "observations"]) at(id).replaceChildren();
  if (!trusted) {
    document.querySelector("input[name=back]").value = location.pathname + location.search;
    at("title").textContent = "Watch";
    document.querySelector(".game").hidden = true;
    return;
  }
  loading(at("title"), "the game");
  const mine = { place, tick, playing, frames: new Map(), bytes: 0, asked: null, stop: new AbortController(), speed: 10 };
  game = mine;
  listen(`/watch-stream/${home}`, { episode: place }, (said) => mine === game && take(said), mine.stop.signal)
    .then(() => mine === game && !mine.over && tell("The game's process has ended."), (error) => mine === game && tell(error.message));
}

function close() {
  game.stop.abort();
  clearTimeout(game.timer);
  game = null;
}

function tell(text) {
  game.over = true;
  game.playing = false;
  at("problem").textContent = text;
  at("problem").hidden = false;
  if (!game.episode) at("title").textContent = "Watch";
}

function take(said) {
  if (said.kind === "opened") game.number = said.number;
  else if (said.kind === "error") tell(said.text);
  else if (said.kind === "seeking") at("where").textContent = `playing again from the beginning: tick ${said.tick}`;
  else if (said.kind === "episode") begin(said);
  else if (said.kind === "frame") {
    keep(said);
    if (said.tick === game.tick && game.shown !== game.tick) show();
    else if (said.tick === game.tick + 1 && game.shown === game.tick) advice(game.frames.get(game.tick)); // what was done next
    if (game.asked && said.tick >= game.asked[1]) game.asked = null;
    if (!game.asked) ask();
  }
}

function begin(episode) {
  game.episode = episode;
  game.tick = Math.min(game.tick, episode.ticks);
  game.speed = episode.per_second;
  at("scrub").max = episode.ticks;
  const players = [...new Set(episode.entities.map((entity) => entity.policy))];
  at("title").textContent = players.join(" – ");
  const row = (entity) => element("tr", {}, element("th", { scope: "row" }, ...who(entity, entity.name), `: ${entity.policy}`), element("td"), element("td", { class: "n" }), element("td", { class: "n" }));
  document.querySelector("#entities tbody").replaceChildren(...episode.entities.map(row));
  mark();
  if (game.tick) ask();
  wait();
  const mine = game, [round, match] = episode.place;
  fetch(`/watch-rows/${home}?${new URLSearchParams({ round, match, tick: episode.end })}`).then((answer) => answer.json()).then(({ rows }) => {
    mine.result = rows.filter((one) => placeOf(one) === mine.place).map(result).join();
    if (mine === game && game.shown === episode.ticks) show();
  });
}

function keep(frame) {
  const size = (frame.picture?.length ?? 0) + 2000;
  const old = game.frames.get(frame.tick);
  if (old) game.bytes -= old.size;
  game.frames.set(frame.tick, { ...frame, size });
  game.bytes += size;
  if (game.bytes <= MOST_BYTES && game.frames.size <= MOST_FRAMES) return;
  const far = [...game.frames.keys()].reduce((one, other) => (Math.abs(other - game.tick) > Math.abs(one - game.tick) ? other : one));
  game.bytes -= game.frames.get(far).size;
  game.frames.delete(far);
}

// Asks for the ticks that come next, if too few of them are there.
function ask() {
  if (!game || !game.episode || game.over) return;
  let missing = game.tick;
  while (missing <= game.episode.ticks && game.frames.has(missing)) missing += 1;
  if (missing > game.episode.ticks || missing > game.tick + FEW) return;
  if (game.asked && missing >= game.asked[0] && missing <= game.asked[1]) return;
  game.asked = [missing, Math.min(missing + AHEAD, game.episode.ticks)];
  const wish = { from: game.asked[0], to: game.asked[1], advice: at("advice").checked ? 1 : 0 };
  const mine = game;
  post(`/watch-wish/${game.number}`, wish).catch((error) => mine === game && tell(error.message));
}

function go(tick, playing = game.playing) {
  if (!game || !game.episode) return;
  game.tick = Math.min(Math.max(tick, 0), game.episode.ticks);
  game.playing = playing;
  game.shown = null;
  show();
  ask();
  mark();
  wait();
}

function show() {
  const frame = game.frames.get(game.tick);
  at("scrub").value = game.tick;
  if (!frame) return;
  game.shown = game.tick;
  draw(frame, `the game at tick ${frame.tick} of ${game.episode.ticks}`);
  at("where").textContent = `tick ${frame.tick} of ${game.episode.ticks}, ${game.episode.env}${frame.tick === game.episode.ticks && game.result ? `: ${game.result}` : ""}`;
  const rows = document.querySelectorAll("#entities tbody tr");
  frame.entities.forEach((entity, place) => {
    const cells = rows[place].children;
    cells[1].textContent = [entity.action, entity.end].filter(Boolean).join(", ");
    cells[2].textContent = frame.tick ? number(entity.reward) : "";
    cells[3].textContent = number(entity.return);
  });
  advice(frame);
  observations(frame);
  if (!game.playing) address(game.place, game.tick);
}

function advice(frame) {
  const after = game.frames.get(frame.tick + 1);
  at("thoughts").replaceChildren(...frame.entities.flatMap((entity, place) => {
    if (!entity.advice) return [];
    const one = game.episode.entities[place], { why, decisions, opinion, name } = entity.advice;
    if (why) return [element("p", { class: "caption" }, `${one.name}: ${why}`)];
    return [thoughts([...who(one, one.name), `: ${name}`], decisions, opinion, after && after.entities[place].choices)];
  }));
}

function observations(frame) {
  const open = new Set([...at("observations").querySelectorAll("details[open]")].map((one) => one.dataset.entity));
  const pictured = frame.picture || frame.text !== undefined;
  at("observations").replaceChildren(...frame.entities.map((entity, place) => {
    const { name } = game.episode.entities[place];
    const opened = open.has(name) || (!pictured && !at("observations").children.length);
    return element("details", { "data-entity": name, open: opened }, element("summary", {}, `what ${name} sees`), ...tables(entity.tables));
  }));
}

function mark() {
  at("play").textContent = game.playing ? "❚❚" : "▶";
  at("play").setAttribute("aria-label", game.playing ? "pause" : "play");
}

function wait() {
  clearTimeout(game.timer);
  if (game.playing) game.timer = setTimeout(step, 1000 / (game.speed * at("speed").value));
}

function step() {
  if (!game || !game.playing) return;
  if (game.tick >= game.episode.ticks) {
    game.playing = false;
    mark();
    address(game.place, game.tick);
    if (at("live").checked) game.timer = setTimeout(newest, 1500, game.place.split("/")[1], false);
  } else {
    if (game.frames.has(game.tick + 1) && (game.shown === game.tick || !game.frames.has(game.tick))) {
      game.tick += 1;
      show();
    }
    ask();
    wait();
  }
}

// Opens the newest game of a match that has ended.
async function newest(match, first = true) {
  const { rows: [found] } = await (await fetch(`/watch-rows/${home}?match=${match}`)).json();
  if (!found || found.cut) at("count").textContent = `No game of match ${match} has ended yet.`;
  else if (first) choose(placeOf(found));
  else if (placeOf(found) !== game.place) open(placeOf(found));
  else game.timer = setTimeout(newest, 2000, match, false); // until another one has ended
}

// Opens what a person has chosen; "back" returns to what was shown before.
function choose(place) {
  history.pushState({}, "", location.href);
  open(place);
  at("player").scrollIntoView();
}

// The address has the episode, its tick where playing rests, and the filters.
function address(place, tick) {
  const fields = new URLSearchParams(place ? { episode: place } : {});
  if (tick !== undefined) fields.set("tick", tick);
  for (const [key, value] of new FormData(at("filter"))) if (value) fields.set(key, value);
  history.replaceState({}, "", `?${fields}`);
}

const keys = { " ": () => toggle(), ArrowLeft: () => go(game.tick - 1, false), ArrowRight: () => go(game.tick + 1, false), Home: () => go(0, false), End: () => go(game.episode.ticks, false) };
const toggle = () => (game.tick >= game.episode.ticks ? go(0, true) : go(game.tick, !game.playing));
document.addEventListener("keydown", (event) => {
  const busy = event.target.closest("input:not([type=range]):not([type=checkbox]), select, textarea, button, a, summary");
  if (!game || !game.episode || !keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
  if (busy && (event.key === " " || !["BUTTON", "A", "SUMMARY"].includes(busy.tagName))) return;
  event.preventDefault();
  keys[event.key]();
});
for (const [id, key] of Object.entries({ play: " ", first: "Home", last: "End", back: "ArrowLeft", next: "ArrowRight" }))
  at(id).onclick = () => game?.episode && keys[key]();
at("scrub").oninput = () => game?.episode && go(+at("scrub").value, false);
at("copy").onclick = () => {
  if (game?.episode) address(game.place, game.tick);
  navigator.clipboard.writeText(location.href).then(() => (at("copy").textContent = "Copied"), () => (at("copy").textContent = "The address is in the address bar"));
};
at("advice").onchange = () => {
  if (!game?.episode) return;
  at("thoughts").textContent = at("advice").checked ? "The policies are being asked …" : "";
  game.frames.clear();
  game.bytes = 0;
  game.asked = null;
  go(game.tick);
};

// ---------------------------------------------------------------- the table

let page = 0, late = 0, known = null, timer = 0;
const SHARE = 0.02, SOONEST = 3; // of a core, and seconds, for asking whether there are more

// Fills the table; again after a while, if it is not to be `fresh` and no episode has come, nothing changes.
async function rows(fresh = true) {
  clearTimeout(timer);
  const form = new FormData(at("filter")), wanted = new URLSearchParams({ page });
  for (const [key, value] of form) if (value) wanted.set(key, value);
  if (!fresh && known !== null) wanted.set("known", known);
  const mine = (late += 1);
  const began = performance.now();
  try {
    const answer = await fetch(`/watch-rows/${home}?${wanted}`);
    if (mine !== late) return;
    if (!answer.ok) at("count").textContent = await answer.text();
    else if (answer.status !== 204) fill(await answer.json());
  } catch {
    at("count").textContent = "The server does not answer.";
  }
  const seconds = (performance.now() - began) / 1000; // the longer it takes, the less often it is asked
  timer = setTimeout(() => (document.hidden || page ? later() : rows(false)), 1000 * Math.max(SOONEST, seconds / SHARE));
}

const later = () => (timer = setTimeout(() => rows(false), 1000 * SOONEST));

function fill(found) {
  known = found.known;
  const select = document.querySelector("#filter [name=policy]"), names = new Set([...select.options].map((one) => one.value));
  select.append(...found.policies.filter((name) => !names.has(name)).map((name) => element("option", { value: name }, name)));
  at("count").textContent = found.count ? `${whole(found.count)} ${found.count === 1 ? "episode" : "episodes"}` : found.known ? "No episode fits." : "No episode has ended yet.";
  at("page").textContent = found.count > found.size ? ` ${page + 1} of ${Math.ceil(found.count / found.size)} ` : "";
  at("newer").hidden = page === 0;
  at("older").hidden = (page + 1) * found.size >= found.count;
  document.querySelector("#rows tbody").replaceChildren(...found.rows.map(row));
  at("newest").replaceChildren(...found.matches.map((match) => element("button", { type: "button", class: "quiet", onclick: () => newest(match) }, `newest of match ${match}`)));
}

const placeOf = (record) => [record.round, record.match, record.lane, record.episode].join("/");

function result(record) {
  const seats = record.seats.map((seat) => `${seat.policy} ${outcomes[seat.outcome] ?? ""} ${seat.return === null ? "" : number(seat.return)}`.trim());
  return [...new Set(seats)].join(", ") + (record.cut ? ", cut by the end of a leg" : "");
}

function row(record) {
  const place = placeOf(record);
  const watch = (event) => (event.preventDefault(), choose(place));
  return element("tr", {},
    element("th", { scope: "row" }, element("a", { href: `?${new URLSearchParams({ episode: place })}`, onclick: watch }, place)),
    element("td", {}, result(record)),
    element("td", { class: "n" }, whole(record.length)), element("td", { class: "n" }, whole(record.tick)));
}

const filtered = () => ((page = 0), address(game?.place, game?.playing ? undefined : game?.tick), rows());
at("filter").addEventListener("input", filtered);
at("filter").addEventListener("reset", () => setTimeout(filtered));
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("newer").onclick = () => ((page -= 1), rows());
at("older").onclick = () => ((page += 1), rows());

const asked = new URLSearchParams(location.search);
if (asked.get("policy")) at("filter").elements.policy.append(element("option", {}, asked.get("policy")));
for (const one of at("filter").elements) if (one.name) one.value = asked.get(one.name) ?? "";
history.replaceState({}, "", location.href);
addEventListener("pagehide", () => game && close()); // a page that the browser keeps ends its game, too
addEventListener("pageshow", (event) => event.persisted && location.reload());
addEventListener("popstate", (event) => event.state && location.reload());
rows();
if (asked.get("episode")) open(asked.get("episode"), +(asked.get("tick") ?? 0) || 0, !asked.get("tick"));
