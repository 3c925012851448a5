// A page that follows a folder: takes changes from the server, and draws charts over ticks, samples or wall time.
import { listen, parsed, replace } from "./board.js";

const { arenaCharts: charts, arenaFigures } = window;
const home = document.getElementById("sections");
const tools = document.getElementById("tools");
let state = {};
let sought = location.hash.slice(1); // the section of the address, which comes later than the page

// What `difference` in arena/board/live.py has made.
function patched(old, change) {
  if ("=" in change) return change["="];
  if ("~" in change) {
    const [first, last, items] = change["~"];
    return [...old.slice(0, first), ...items, ...old.slice(old.length - last)];
  }
  const made = Array.isArray(old) ? [...old] : { ...old };
  change["-"].forEach((key) => delete made[key]);
  for (const [key, one] of Object.entries(change["&"])) made[key] = patched(made[key], one);
  return made;
}

// Charts over ticks.

const OVER_TIME = /^learning$|^(learning|results|logged|evaluation|strengths)-|^lengths-\d+-time$/;
const setting = () => ({
  clock: tools.clock?.value ?? "ticks", // of a run alone
  smoothing: Number(tools.smoothing.value),
  logx: tools.logx.checked,
  logy: tools.logy.checked,
});

function between(from, to, tick) {
  if (tick <= 0 || !from.length) return 0;
  let low = 0;
  let high = from.length - 1;
  if (tick >= from[high]) return to[high];
  while (low < high) {
    const middle = (low + high) >> 1;
    from[middle] < tick ? (low = middle + 1) : (high = middle);
  }
  const [x, y] = low ? [from[low - 1], to[low - 1]] : [0, 0];
  return from[low] > x ? y + ((to[low] - y) * (tick - x)) / (from[low] - x) : to[low];
}

// A policy's own samples, or those of all where it has none; the seconds of the run.
function reading(policy, clock) {
  const all = Object.entries(state.clocks ?? {});
  const own = all.filter(([name, found]) => (policy ? name === policy : name) && found[clock]);
  const timed = all.filter(([name, found]) => (name === "" || clock === "samples") && found[clock]);
  const used = clock === "seconds" ? (timed.length ? timed : all.slice(0, 1)) : own.length ? own : timed;
  return (tick) => used.reduce((sum, [, found]) => sum + between(found.ticks, found[clock], tick), 0);
}

function smooth(values, weight) {
  let mean = null;
  let share = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    mean = weight * (mean ?? 0) + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return mean / share;
  });
}

charts.view = (name, figure) => {
  if (!OVER_TIME.test(name)) return figure;
  const { clock, smoothing, logx, logy } = setting();
  let data = figure.data;
  let unit = [1, clock];
  if (clock !== "ticks") {
    data = data.map((trace) => ({ ...trace, x: trace.x.map(reading(trace.meta?.policy, clock)) }));
    const last = data.reduce((most, trace) => trace.x.reduce((a, b) => Math.max(a, b), most), 0);
    if (clock === "seconds") unit = last > 7200 ? [3600, "hours"] : last > 120 ? [60, "minutes"] : [1, "seconds"];
    data = data.map((trace) => ({ ...trace, x: trace.x.map((x) => x / unit[0]) }));
  }
  if (smoothing) {
    data = data.filter((trace) => !trace.fill).map((trace) => {
      if (!/lines/.test(trace.mode ?? "")) return trace;
      const { error_y: _, ...rest } = trace;
      return { ...rest, y: smooth(trace.y, smoothing) };
    });
  }
  const { xaxis = {}, yaxis = {}, ...layout } = figure.layout;
  const { range, rangemode, ...free } = yaxis;
  const title = xaxis.title?.text === "ticks" ? { ...xaxis.title, text: unit[1] } : xaxis.title;
  const x = { ...xaxis, title, type: logx ? "log" : "linear", uirevision: `${clock}${unit[1]}${logx}` };
  const y = { ...(logy ? free : yaxis), type: logy ? "log" : "linear", uirevision: `${logy}` };
  return { data, layout: { ...layout, xaxis: x, yaxis: y } };
};

tools.addEventListener("input", () => charts.redraw());
tools.addEventListener("submit", (event) => event.preventDefault());

function take({ all, change }) {
  const before = state;
  state = all ?? patched(state, change);
  const drawn = { ...charts.figures };
  if (state.data !== before.data) {
    charts.data = state.data;
    for (const name of Object.keys(drawn)) delete charts.figures[name];
    Object.assign(charts.figures, arenaFigures.of(state.data ?? {}));
  }
  for (const section of home.children) {
    const html = state.sections?.[section.id] ?? "";
    if (html !== (before.sections?.[section.id] ?? "")) replace(section, parsed(html));
  }
  for (const link of document.querySelectorAll("nav li a")) {
    link.parentElement.hidden = !(link.hash.slice(1) in (state.sections ?? {}));
  }
  const clocks = JSON.stringify(state.clocks) !== JSON.stringify(before.clocks) && (tools.clock?.value ?? "ticks") !== "ticks";
  for (const [name, figure] of Object.entries(charts.figures)) {
    if (clocks || (figure !== drawn[name] && JSON.stringify(figure) !== JSON.stringify(drawn[name]))) charts.redraw(name);
  }
  const share = state.share ?? 1;
  const bar = document.getElementById("reading");
  bar.hidden = share === 1 || Boolean(state.error);
  bar.querySelector("progress").value = share;
  const trouble = document.getElementById("trouble");
  trouble.hidden = !state.error;
  trouble.textContent = state.error;
  const section = share === 1 && sought && home.querySelector(`#${CSS.escape(sought)}`);
  if (section && !section.matches(":empty")) {
    if (!scrollY) section.scrollIntoView();
    sought = "";
  }
}

listen(home.dataset.events, document.getElementById("live"), take);
